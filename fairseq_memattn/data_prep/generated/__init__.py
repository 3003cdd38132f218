"""Generated corpora: discourse (document translation), numeric (numeric reasoning) and stories.

Words and templates are tab-separated files beside the modules that read them.
"""
