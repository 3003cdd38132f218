"""Preparation of corpora: from a raw corpus to data that fairseq reads, with document ids."""
