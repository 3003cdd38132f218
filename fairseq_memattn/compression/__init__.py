"""Stores documents on disk as the memory vectors of GMAT's encoder, and reads them."""
