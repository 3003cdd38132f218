"""Lines, rules of tokenisation, and pieces."""
