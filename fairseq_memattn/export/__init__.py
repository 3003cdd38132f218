"""From a model of fairseq to one of `fairseq_memattn.transformers`, and back."""
