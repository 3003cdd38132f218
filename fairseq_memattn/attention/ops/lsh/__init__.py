"""Attention by locality-sensitive hashing beside a global memory (GMAT paper, section 3.1)."""
