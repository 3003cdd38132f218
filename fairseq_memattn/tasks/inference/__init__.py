"""What is done with the models of fairseq's tasks: search, scores, stores."""
