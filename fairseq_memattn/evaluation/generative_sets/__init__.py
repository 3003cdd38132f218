"""Readers of generative context sets, one file for each format."""
