"""Scores that validation logs."""
