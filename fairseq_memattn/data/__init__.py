"""Data sets of documents: which sentences belong together, and the windows made of them."""
