"""Dictionaries of fairseq, checked before the long stages that end in fairseq."""

from pathlib import Path

from fairseq_memattn.data_prep.text.lines import read_lines
from fairseq_memattn.errors import MemAttnError

SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")  # in every dictionary, and in no file
OVERWRITE = " #fairseq:overwrite"


def read_words(path: Path) -> set[str]:
    """The words of a dictionary of fairseq; each line is a word, a space and a count.

    Raises MemAttnError for any other line, for a word that occurs twice or is one of fairseq's own,
    and for an empty file.
    """
    words: set[str] = set()
    for number, line in enumerate(read_lines(path), start=1):
        entry = line.rstrip()
        replaces = entry.endswith(OVERWRITE)
        word, space, count = entry.removesuffix(OVERWRITE).rpartition(" ")
        if not space or not count.isdecimal():
            raise MemAttnError(
                f"{path}, line {number}: must be a symbol, a space and a count, as in a dictionary "
                f"of fairseq, but is {line!r}"
            )
        if not replaces and (word in words or word in SPECIAL):
            what = "is one of fairseq's own symbols" if word in SPECIAL else "occurs twice"
            raise MemAttnError(f"{path}, line {number}: {word!r} {what}; remove this line")
        words.add(word)
    if not words:
        raise MemAttnError(f"{path}: the dictionary has no symbols")
    return words
