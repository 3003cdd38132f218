"""Decoding documents: each sentence with the translations of the previous ones as its context."""
