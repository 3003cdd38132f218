"""Generated corpora: `discourse` (document translation) and `numeric` (numeric reasoning).

Words and templates are tab-separated files beside the modules that read them.
"""
