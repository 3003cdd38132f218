"""Control strategies: how the tokens of a sequence are written into the slots of a memory."""
