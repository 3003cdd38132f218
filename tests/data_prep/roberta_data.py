"""A tiny GPT-2 BPE in the files that RoBERTa's comes in, and fairseq on a tiny RoBERTa."""

import json
import os
from pathlib import Path

from in_process import run_in_process

import fairseq_memattn

MERGES = ["t h", "th e", "Ġ the", "Ġ i", "Ġi s", "o u", "ou s", "Ġ h", "Ġh ous", "Ġhous e", "é e"]

COMMON = "--cpu --num-workers 0 --batch-size 4 --required-batch-size-multiple 1 --log-format json"
TINY = "--arch roberta --encoder-layers 1 --encoder-embed-dim 8 --encoder-ffn-embed-dim 8 "
TINY += "--encoder-attention-heads 2 --optimizer adam --lr 0.1 --seed 1"


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


def fairseq(command: str, data: object, flags: str) -> str:
    """What fairseq-COMMAND logs when this process runs it."""
    fairseq_memattn.register()
    argv = [f"fairseq-{command}", str(data), *COMMON.split(), *flags.split()]
    done = run_in_process(argv[0], argv, None, None, os.environ)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr
