"""fairseq-shaped modules: projections, incremental state and padding around `attention`."""
