"""GPT-2's BPE against fairseq's."""

import json
import random
from pathlib import Path

import pytest
from fairseq.data.encoders.gpt2_bpe_utils import bytes_to_unicode, get_encoder

from fairseq_memattn.data_prep.pipeline.pretrained_subwords import GPT2BPE, letters

SIGNS = "aaaabbbcc  \t\n'lsét12,.中🙂\u00a0"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A vocabulary, and merges of earlier pieces at random, some of them twice."""
    draw, folder = random.Random(1), tmp_path_factory.mktemp("bpe")
    pieces = [letters()[byte] for byte in SIGNS.encode()]
    lines = ["#version: 0.2"]
    for _ in range(300):
        pair = draw.choices(pieces, k=2)
        lines.append(" ".join(pair))
        pieces.append("".join(pair))
    vocabulary = dict.fromkeys([*letters().values(), *pieces])
    numbers = {piece: number for number, piece in enumerate(vocabulary)}
    (folder / "encoder.json").write_text(json.dumps(numbers), encoding="utf-8")
    (folder / "vocab.bpe").write_text("\n".join([*lines, ""]), encoding="utf-8")
    return folder / "encoder.json", folder / "vocab.bpe"


def test_every_byte_has_a_letter() -> None:
    assert letters() == bytes_to_unicode()


def test_the_numbers_of_random_text(files: tuple[Path, Path]) -> None:
    ours, theirs = GPT2BPE(*files), get_encoder(*map(str, files))
    draw = random.Random(2)
    longest = 0
    for length in range(1, 200):
        text = "".join(draw.choices(SIGNS, k=length))
        encoded = ours.encode(text)
        assert encoded == theirs.encode(text)
        longest = max(longest, *(len(theirs.decoder[number]) for number in encoded))
    assert longest >= 3  # pieces of two merges
