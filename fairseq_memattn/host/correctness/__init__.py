"""Nothing is lost or wrong without a word."""
