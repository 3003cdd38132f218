"""fairseq's modules with the layers of `attention`: layout, padding and incremental state."""
