"""Translation of documents: each sentence has the previous sentences as context."""
