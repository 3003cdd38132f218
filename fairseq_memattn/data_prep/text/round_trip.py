"""Comparison of text with what its pieces give back."""

import os
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

WORD_BEGIN = "\u2581"  # SentencePiece's mark at the beginning of a word
UNKNOWN = "<unk>"
CONTEXT = 10  # characters before the first difference that a warning shows
SHOWN = 40  # characters that a warning shows
WORDS_ONLY = (
    f"; SentencePiece and BPE have no piece for {UNKNOWN} in a text: `memattn prepare wikitext` "
    "prepares WikiText word by word"
)


def from_sentencepiece(pieces: str) -> str:
    """The text that fairseq makes of pieces with `--post-process sentencepiece`."""
    return "".join(pieces.split()).replace(WORD_BEGIN, " ").strip()


def from_bpe(pieces: str) -> str:
    """The text that fairseq makes of pieces with `--post-process subword_nmt`."""
    return f"{' '.join(pieces.split())} ".replace("@@ ", "").rstrip()


class RoundTrip:
    """Compares the lines of a file with the text that their pieces give back.

    Runs of white space count as one space, because fairseq and the scorers split text there.
    """

    def __init__(
        self, source: Path, restore: Callable[[str], str], known: set[str] | None = None
    ) -> None:
        """The comparison for a file.

        restore: the function from pieces to text
        known: the pieces of the model or dictionary; None where every piece is known
        """
        self.source = source
        self.restore = restore
        self.known = known
        self.lines = 0
        self.lost = 0
        self.first = (0, "", "")

    def add(self, line: str, pieces: str) -> None:
        """Compare the next line."""
        self.lines += 1
        if self.known is not None and not self.known.issuperset(found := pieces.split()):
            pieces = " ".join(piece if piece in self.known else UNKNOWN for piece in found)
        restored = self.restore(pieces)
        if restored == line:  # nearly always, and quicker than what follows
            return
        before, after = (" ".join(text.split()) for text in (line, restored))
        if before != after:
            self.lost += 1
            if self.lost == 1:
                self.first = (self.lines, before, after)

    def report(self) -> Counter[str]:
        """The count for the record of a stage; lines that are not restored are a warning."""
        if not self.lost:
            return Counter()
        number, before, after = self.first
        begin = max(0, len(os.path.commonprefix([before, after])) - CONTEXT)
        was, becomes = (text[begin : begin + SHOWN] for text in (before, after))
        print(
            f"warning: {self.source}: {self.lost:,} of {self.lines:,} lines differ from the text "
            f"that their pieces give back; the first is line {number}, where {was!r} becomes "
            f"{becomes!r}{WORDS_ONLY if UNKNOWN in before else ''}",
            file=sys.stderr,
        )
        what = f"lines of {self.source.name} that their pieces do not give back"
        return Counter({f"{what} (the first is line {number})": self.lost})
