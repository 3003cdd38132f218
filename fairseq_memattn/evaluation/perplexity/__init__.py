"""Perplexity of language models on long texts."""
