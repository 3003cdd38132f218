"""Scores and pictures of what the models produce. Its arithmetic needs no torch model."""
