"""Nothing of a file runs."""
