"""Translation of documents: sentences with the sentences before them as context."""
