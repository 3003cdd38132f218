"""Documents as the few vectors that GMAT's encoder makes of them, on disk and back."""
