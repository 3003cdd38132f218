"""Words of a text, or characters where a script has no spaces, with their places in the text."""

import re
import unicodedata
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import NamedTuple

from fairseq_memattn.evaluation.letters import letters
from fairseq_memattn.evaluation.swapped_groups import script
from fairseq_memattn.evaluation.tokenizers import SCRIPTS

UNSPACED = SCRIPTS.keys() - {"HANGUL"}  # Korean has spaces
# A no-break space is within a word: "z.\u00a0B.", and a French word with its question mark.
CHUNK = re.compile(r"\S+(?:[\u00a0\u202f]\S+)*")
FINAL, MEDIAL = frozenset(".!?…؟۔।॥。！？｡"), frozenset(",;:–—-،؛、，；：")


class Unit(NamedTuple):
    """A word, or a character of a script without spaces, with the punctuation around it.

    start, stop: its place in the text
    key: its letters and digits without case; the punctuation itself where it has none
    end: the punctuation after it: "final", as of a sentence, "medial", or "" for none. A unit
        before a line break, and a character before a space, are "final" as well
    """

    start: int
    stop: int
    key: str
    end: str


def units(text: str) -> list[Unit]:
    """The units of a text in their order. What is between them is spaces and line breaks."""
    chunks = list(CHUNK.finditer(text))
    stops = [*(chunk.start() for chunk in chunks), len(text)][1:]
    found = []
    for chunk, following in zip(chunks, stops, strict=True):
        bounds = [*(chunk.start() + start for start in _starts(chunk[0])), chunk.end()]
        for start, stop in pairwise(bounds):
            space = text[stop:following] if stop == chunk.end() else ""
            found.append(_unit(text[start:stop], start, space))
    return found


def line_text(text: str, part: Sequence[Unit]) -> str:
    """The text of consecutive units on one line: each line break is a space."""
    if not part:
        return ""
    lines = text[part[0].start : part[-1].stop].split("\n")
    return " ".join(line.strip() for line in lines if line.strip())


def _unit(word: str, start: int, space: str) -> Unit:
    """space: what separates the word from the next one"""
    key = letters(unicodedata.normalize("NFKC", word).casefold())
    ended = "\n" in space or (space and any(map(_unspaced, word)))
    end = "final" if ended else _punctuation(word)
    return Unit(start, start + len(word), key or word, end)


def _punctuation(word: str) -> str:
    """The kind of punctuation at the end of a word, before quotation marks and brackets."""
    for character in reversed(word):
        if character in FINAL:
            return "final"
        if character in MEDIAL:
            return "medial"
        if character.isalnum():
            return ""
    return ""


def _starts(chunk: str) -> list[int]:
    """Where the units begin in a text without spaces.

    A character without a script of spaces is a unit of its own. Punctuation belongs to the unit
    before it, an opening quotation mark or bracket to the one after it.
    """
    if not any(map(_unspaced, chunk)):
        return [0]
    starts = [0]
    for index in range(1, len(chunk)):
        before, character = chunk[index - 1], chunk[index]
        if _opens(before):
            continue
        alone = _unspaced(character) or _unspaced(before) or _wide_punctuation(before)
        if _opens(character) or (character.isalnum() and alone):
            starts.append(index)
    return starts


@cache
def _unspaced(character: str) -> bool:
    return script(character) in UNSPACED


def _opens(character: str) -> bool:
    return unicodedata.category(character) in ("Ps", "Pi")


def _wide_punctuation(character: str) -> bool:
    """Whether a character is punctuation of Chinese or Japanese."""
    return not character.isalnum() and unicodedata.east_asian_width(character) in "WF"
