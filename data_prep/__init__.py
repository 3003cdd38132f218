"""Raw corpora to text with document ids, and from there to what fairseq-preprocess reads."""
