"""What the commands share: models, texts, checked inputs and outputs."""
