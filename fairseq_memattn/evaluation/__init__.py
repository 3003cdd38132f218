"""Scores of the models' output, and plots. Importing it imports neither fairseq nor torch."""
