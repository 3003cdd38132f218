"""How a command of fairseq ends on an error."""
