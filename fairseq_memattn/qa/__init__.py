"""Question answering: data sets, answers as spans of their contexts, and scores of answers."""
