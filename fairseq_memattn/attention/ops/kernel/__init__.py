"""Kernel (linear) attention, with an optional gate."""
