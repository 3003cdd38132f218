"""GMAT's attention in chunks and windows with a global memory (GMAT paper, section 2)."""
