"""The wall around fairseq: what is changed in it, and the checks of what it reads."""
