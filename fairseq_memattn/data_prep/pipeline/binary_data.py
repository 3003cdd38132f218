"""fairseq's dictionaries and binary data: the same bytes as fairseq-preprocess writes.

A data set of N sentences is two files. NAME.bin has the numbers of the tokens. NAME.idx has a
header, the length of each sentence in tokens (int32) and its first byte in NAME.bin (int64).
"""

import struct
import sys
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from fairseq_memattn.data_prep.text.lines import SHOWN, map_lines, progress, read_lines
from fairseq_memattn.errors import MemAttnError

SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")  # in every dictionary, and in no file
OVERWRITE = " #fairseq:overwrite"
EOS, UNKNOWN = SPECIAL.index("</s>"), SPECIAL.index("<unk>")
MULTIPLE = 8  # the number of symbols is one, for the sake of GPUs
HEADER = struct.Struct("<9sQBQ")  # magic word, version, code of the type, number of sentences
MAGIC, VERSION = b"MMIDIDX\x00\x00", 1
# The number of symbols below which a type is chosen, the type, and its code.
TYPES = ((65_500, np.dtype("<u2"), 8), (4_294_967_295, np.dtype("<u4"), 9))

Symbols = list[tuple[str, int]]  # with their counts


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


def check_dictionary(path: Path) -> None:
    """Raise MemAttnError for a file of --dictionary that is not a dictionary of fairseq."""
    if not path.is_file():
        raise MemAttnError(f"--dictionary {path}: no such file")
    read_words(path)


def count_symbols(texts: Sequence[Path], pieces: Sequence[str] = ()) -> Symbols:
    """The symbols of the texts, and other pieces, by falling count, then by name."""
    counts = Counter(dict.fromkeys(pieces, 0))
    for text in texts:
        for line in read_lines(text):
            counts.update(line.split())
    symbols = sorted((word, n) for word, n in counts.items() if word not in SPECIAL)
    symbols.sort(key=lambda symbol: -symbol[1])
    missing = -(len(SPECIAL) + len(symbols)) % MULTIPLE
    return symbols + [(f"madeupword{i:04d}", 0) for i in range(missing)]


def read_symbols(path: Path) -> Symbols:
    """The symbols of a dictionary that `read_words` has checked."""
    symbols = []
    for line in read_lines(path):
        word, _, count = line.rstrip().removesuffix(OVERWRITE).rpartition(" ")
        symbols.append((word, int(count)))
    return symbols


def write_symbols(symbols: Symbols, path: Path) -> None:
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{word} {count}\n" for word, count in symbols)


def write_binary(text: Path, symbols: Symbols, prefix: Path, workers: int) -> str:
    """Writes PREFIX.bin and PREFIX.idx; returns what they contain, in a sentence.

    A warning counts the lines with symbols that the dictionary lacks, and shows the first one.
    """
    words = [*SPECIAL, *(word for word, _ in symbols)]
    numbers = {word: number for number, word in enumerate(words)}
    dtype, code = next((dtype, code) for limit, dtype, code in TYPES if len(words) < limit)
    sizes = array("i")
    unknown = lacking = 0
    first = ""
    lines = progress(read_lines(text), prefix.name, text)
    with open(f"{prefix}.bin", "wb") as file:
        for tokens, count, word in map_lines(partial(encoder, numbers, dtype), lines, workers):
            file.write(tokens)
            sizes.append(len(tokens) // dtype.itemsize)
            unknown += count
            if word is not None:
                lacking += 1
                first = first or f"line {len(sizes)}, {word[:SHOWN]!r}"
    starts = np.cumsum(np.array([0, *sizes[:-1]], "<i8")) * dtype.itemsize
    with open(f"{prefix}.idx", "wb") as file:
        file.write(HEADER.pack(MAGIC, VERSION, code, len(sizes)))
        file.write(np.array(sizes, "<i4").tobytes())
        file.write(starts.tobytes())
    if lacking:
        print(
            f"warning: {text}: {lacking:,} of {len(sizes):,} lines have symbols that the "
            f"dictionary lacks, which are <unk> in the data; the first is {first}",
            file=sys.stderr,
        )
    share = unknown / sum(sizes)
    return f"{len(sizes)} sentences, {sum(sizes)} tokens, {share:.3%} of them <unk>"


def encoder(
    numbers: dict[str, int], dtype: np.dtype
) -> Callable[[str], tuple[bytes, int, str | None]]:
    """The function from a line to its tokens, the end of the sentence included.

    It also returns the number of <unk>, which a text may have itself, and the first word that the
    dictionary lacks.
    """

    def encode(line: str) -> tuple[bytes, int, str | None]:
        words = line.split()
        tokens = [*(numbers.get(word, UNKNOWN) for word in words), EOS]
        unknown = tokens.count(UNKNOWN)
        lacking = next((word for word in words if word not in numbers), None) if unknown else None
        return np.array(tokens, dtype).tobytes(), unknown, lacking

    return encode
