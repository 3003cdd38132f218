"""Cuts the translation of a document into lines, one for each sentence of the reference.

The cuts minimise the word edit distance between the lines and the reference's sentences (Matusov et
al., 2005, "Evaluating machine translation output with automatic sentence segmentation"), to which
each line adds a cost if it ends within a sentence of the text.
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

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
        # Punctuation of Chinese or Japanese.
        wide = not before.isalnum() and unicodedata.east_asian_width(before) in "WF"
        alone = _unspaced(character) or _unspaced(before) or wide
        if _opens(character) or (character.isalnum() and alone):
            starts.append(index)
    return starts


@cache
def _unspaced(character: str) -> bool:
    return script(character) in UNSPACED


def _opens(character: str) -> bool:
    return unicodedata.category(character) in ("Ps", "Pi")


# Costs are integers: this many to a word that is inserted, deleted or substituted.
EDIT = 100
BOUNDARY_COST = 1.5
UNREACHED = 2**30
BITS, LOWER = 32, 2**32 - 1
ONE_EDIT = EDIT << BITS
# A sentence is an addition if the edit distance without it is less by more than this share of its
# words.
ADDED = 0.5

Row = NDArray[np.int64]


@dataclass(frozen=True)
class Alignment:
    """A document's translation by the sentences of its reference.

    lines: the text of each sentence; "" if it has none. Together they have all of the text
    additions: the sentences of each line that the reference does not have. They are in the lines
    kept: the text of each line without its additions
    edits: the number of words to insert, delete or substitute to make the lines the reference
    """

    lines: list[str]
    additions: list[list[str]]
    kept: list[str]
    edits: int


def align(references: Sequence[str], text: str, boundary_cost: float = BOUNDARY_COST) -> Alignment:
    """The alignment of least cost of a text to the sentences of its reference.

    boundary_cost: cost of a line, in edits, unless a sentence or a line of the text ends with it,
        or it ends in the kind of punctuation in which its reference ends. With 0, the cost is the
        word edit distance alone
    """
    sentences, words = [units(reference) for reference in references], units(text)
    places = cuts(sentences, words, boundary_cost)
    lines = [words[start:stop] for start, stop in pairwise(places)]
    pairs = list(zip(sentences, lines, strict=True))
    added = [additions(*pair) for pair in pairs]
    kept = [
        [one for one in _sentences(line) if one not in found]
        for line, found in zip(lines, added, strict=True)
    ]
    return Alignment(
        [line_text(text, line) for line in lines],
        [[line_text(text, one) for one in found] for found in added],
        [" ".join(line_text(text, one) for one in found) for found in kept],
        sum(distance(*pair) for pair in pairs),
    )


def alignment_memory(references: Sequence[str], text: str) -> int:
    """The bytes of memory that `align` takes, without those of the text."""
    return np.dtype(np.int32).itemsize * len(references) * (len(units(text)) + 1)


def cuts(
    references: Sequence[Sequence[Unit]], words: Sequence[Unit], boundary_cost: float
) -> list[int]:
    """Where the lines of least cost begin in `words`, and their number at the end.

    A row of the dynamic programme has, for each j, the least cost of `words[:j]` after some of the
    reference's words, and the j where the current line began. Of equal costs, that of the earliest
    beginning is taken. A row takes O(len(words)) time. The memory is 4 bytes for each sentence and
    word.
    """
    rows = _Rows(words)
    costs = np.full(len(words) + 1, UNREACHED, np.int64)
    costs[0] = 0
    beginnings = []
    for reference in references:
        row = rows.read(costs, reference)
        beginnings.append(rows.beginnings(row))
        costs = rows.costs(row) + _boundary_costs(words, reference[-1].end, boundary_cost)
    places = [len(words)]
    for begins in reversed(beginnings):
        places.append(int(begins[places[-1]]))
    return places[::-1]


def distance(reference: Sequence[Unit], words: Sequence[Unit]) -> int:
    """The word edit distance: how many words are inserted, deleted or substituted."""
    rows = _Rows(words)
    costs = np.arange(len(words) + 1, dtype=np.int64) * EDIT
    return int(rows.costs(rows.read(costs, reference))[-1]) // EDIT


class _Rows:
    """Rows of the dynamic programme over `words`.

    An entry of a row is one number, so that its minimum is that of both: the cost in the upper 32
    bits, and the place where the line began in the lower ones.
    """

    def __init__(self, words: Sequence[Unit]) -> None:
        self.numbers: dict[str, int] = {}
        numbered = [self.numbers.setdefault(word.key, len(self.numbers)) for word in words]
        self.words = np.array(numbered, np.int64)
        self.places = np.arange(len(words) + 1, dtype=np.int64)
        self.inserted = self.places * ONE_EDIT

    def costs(self, row: Row) -> Row:
        return row >> BITS

    def beginnings(self, row: Row) -> NDArray[np.int32]:
        return (row & LOWER).astype(np.int32)

    def read(self, costs: Row, reference: Sequence[Unit]) -> Row:
        """The row after a sentence of the reference. costs: those of a line's beginning at j"""
        row = self._insert((costs << BITS) + self.places)
        for word in reference:
            differs = self.words != self.numbers.get(word.key, -1)
            after = row + ONE_EDIT  # the word is deleted
            np.minimum(after[1:], row[:-1] + differs * ONE_EDIT, out=after[1:])
            row = self._insert(after)
        return row

    def _insert(self, row: Row) -> Row:
        """The row after insertions: at j, the minimum over i <= j of row[i] and j - i edits."""
        least: Row = np.minimum.accumulate(row - self.inserted)
        return least + self.inserted


def additions(reference: Sequence[Unit], line: Sequence[Unit]) -> list[list[Unit]]:
    """The sentences of a line that its reference does not have, in their order.

    Most of their words are insertions: without such a sentence, the edit distance is less by more
    than half of its words. The sentences are tried from the last to the first, each without those
    that were found, and one of them stays.
    """
    sentences = _sentences(line)
    if len(sentences) < 2:
        return []
    forwards, backwards = _Rows(reference), _Rows(reference[::-1])
    # The edits between what is before each sentence, or after it, and each part of the reference.
    before = [forwards.places * EDIT]
    for sentence in sentences[:-1]:
        before.append(forwards.costs(forwards.read(before[-1], sentence)))
    after = backwards.places * EDIT
    found: list[list[Unit]] = []
    for row, sentence in zip(reversed(before), reversed(sentences), strict=True):
        longer = backwards.costs(backwards.read(after, sentence[::-1]))
        saved = _joined(row, longer) - _joined(row, after)
        if saved > ADDED * EDIT * len(sentence) and len(found) < len(sentences) - 1:
            found.append(sentence)
        else:
            after = longer
    return found[::-1]


def _joined(before: Row, after: Row) -> int:
    """The least cost of two parts of a line, one before the other."""
    return int((before + after[::-1]).min())


def _sentences(line: Sequence[Unit]) -> list[list[Unit]]:
    found: list[list[Unit]] = [[]]
    for word in line:
        found[-1].append(word)
        if word.end == "final":
            found.append([])
    return [sentence for sentence in found if sentence]


def _boundary_costs(words: Sequence[Unit], end: str, boundary_cost: float) -> Row:
    """The cost of a line that ends before each word, and at the end of the text."""
    ends = [word.end in ("final", end) for word in words]
    costs = np.where([True, *ends], 0, round(EDIT * boundary_cost)).astype(np.int64)
    costs[-1] = 0
    return costs
