"""Data sets of documents, as fairseq batches them."""
