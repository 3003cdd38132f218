"""`memattn prepare` in this process, and a tiny GPT-2 BPE in the files that RoBERTa's comes in."""

import json
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from fairseq_memattn.cli import main

MERGES = ["t h", "th e", "Ġ the", "Ġ i", "Ġi s", "o u", "ou s", "Ġ h", "Ġh ous", "Ġhous e", "é e"]


def prepare(module: ModuleType, argv: Sequence[str]) -> int:
    """Runs a preparation, by the module of its name; returns the exit status."""
    return main(["prepare", module.__name__.rpartition(".")[2].replace("_", "-"), *argv])


def write_gpt2_files(folder: Path) -> Path:
    """encoder.json, vocab.bpe and dict.txt: every byte and what the merges make."""
    from fairseq.data.encoders.gpt2_bpe_utils import bytes_to_unicode

    pieces = [*bytes_to_unicode().values(), *(merge.replace(" ", "") for merge in MERGES)]
    numbers = {piece: 7 * number % 1000 for number, piece in enumerate(pieces)}
    folder.mkdir(parents=True)
    (folder / "encoder.json").write_text(json.dumps(numbers))
    (folder / "vocab.bpe").write_text("\n".join(["#version: 0.2", *MERGES, ""]), encoding="utf-8")
    words = [*sorted(numbers.values(), reverse=True), "madeupword0000"]
    (folder / "dict.txt").write_text("".join(f"{word} 1\n" for word in words))
    return folder
