"""What recipes/run.py is made of."""
