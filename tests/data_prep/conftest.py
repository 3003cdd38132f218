"""Puts this folder, with what its tests share, on the path."""
