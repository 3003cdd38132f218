"""Prints a vocabulary of WordPiece: BERT's special tokens, then the words of generated stories."""

import sys
from pathlib import Path

words = [line.split()[0] for line in Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()]
print("\n".join([*(f"[{name}]" for name in "PAD UNK CLS SEP MASK".split()), *words]))
