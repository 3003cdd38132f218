"""One folder an operation: its public functions, the fast form, and `naive.py`, its oracle."""
