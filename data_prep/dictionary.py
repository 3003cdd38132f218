"""fairseq's dictionaries, checked before the long work that ends in fairseq."""

from pathlib import Path

from data_prep.files import DataError, read_lines

SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")  # every dictionary has them, and no file names them
OVERWRITE = " #fairseq:overwrite"


def read_words(path: Path) -> set[str]:
    """The words of a dictionary of fairseq's: each line is a word, a space and a count.

    Raises DataError for another line, a word that fairseq would find twice, and an empty file.
    """
    words: set[str] = set()
    for number, line in enumerate(read_lines(path), start=1):
        entry = line.rstrip()
        replaces = entry.endswith(OVERWRITE)
        word, space, count = entry.removesuffix(OVERWRITE).rpartition(" ")
        if not space or not count.isdecimal():
            raise DataError(
                f"{path}, line {number}: a dictionary of fairseq's has a symbol, a space and a "
                f"count on each line, but here is {line!r}"
            )
        if not replaces and (word in words or word in SPECIAL):
            what = "one of fairseq's own symbols" if word in SPECIAL else "in it twice"
            raise DataError(f"{path}, line {number}: {word!r} is {what}; leave this line out")
        words.add(word)
    if not words:
        raise DataError(f"{path}: a dictionary without any symbols")
    return words
