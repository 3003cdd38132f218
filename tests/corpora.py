"""Public corpora, in the folder that MEMATTN_DATA names, and dictionaries of made-up words."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from fairseq.data import Dictionary

FOLDER = Path(os.environ.get("MEMATTN_DATA", ""))


def corpus(name: str) -> Path:
    """The folder or file of a corpus; a test that reads it is marked with `needs`."""
    return FOLDER / name


def needs(name: str) -> pytest.MarkDecorator:
    """Skips a test where MEMATTN_DATA is unset or has no such corpus."""
    if not os.environ.get("MEMATTN_DATA"):
        return pytest.mark.skip(reason=f"needs {name}: MEMATTN_DATA is unset")
    return pytest.mark.skipif(
        not corpus(name).exists(), reason=f"needs {name}, which the folder in MEMATTN_DATA lacks"
    )


def numbered_words(count: int, *more: str) -> "Dictionary":
    """fairseq's dictionary of w0, w1 and so on, and then of the others."""
    from fairseq.data import Dictionary

    words = Dictionary()
    for word in (*(f"w{number}" for number in range(count)), *more):
        words.add_symbol(word)
    return words
