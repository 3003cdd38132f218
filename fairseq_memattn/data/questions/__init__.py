"""Data sets of questions and of spans of text that answer them."""
