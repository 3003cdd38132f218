"""One registered model family a file. Importing a file registers it with fairseq."""
