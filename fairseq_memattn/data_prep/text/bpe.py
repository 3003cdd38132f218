"""Byte pair encoding as subword-nmt does it (Sennrich et al., 2016)."""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from importlib import metadata
from pathlib import Path

from tqdm import tqdm

from fairseq_memattn.data_prep.text.lines import LineFunction, progress, read_lines
from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.files import write_all_or_nothing


def version() -> str:
    """The version of subword-nmt; the segmentation depends on it."""
    import subword_nmt  # noqa: F401  # one that is missing is told with its remedy

    return metadata.version("subword-nmt")


def learn(inputs: Sequence[Path], codes: Path, symbols: int, total: bool) -> Counter[str]:
    """Learn merges from all inputs together; returns their number.

    symbols: the number of merges or, with `total`, of merges and characters together
    Raises MemAttnError for inputs without text.
    """
    from subword_nmt import learn_bpe as library

    library.tqdm = partial(tqdm, desc=str(codes), unit=" merges", disable=None)
    if not any(len(word) > 1 for line in _words(inputs) for word in line.split(" ")):
        raise MemAttnError(f"{inputs[0]}: no text to learn from")
    with write_all_or_nothing([codes]) as [file]:
        library.learn_bpe(_words(inputs), file, symbols, total_symbols=total)
    return Counter(merges=sum(1 for _ in read_lines(codes)) - 1)  # the first line is a header


def segmenter(codes: Path) -> LineFunction:
    """The segmentation by the codes that `learn` wrote; pieces of a word end in "@@"."""
    from subword_nmt import apply_bpe as library

    with open(codes, encoding="utf-8", newline="\n") as file:
        bpe = library.BPE(file)
    return lambda line: str(bpe.segment(" ".join(line.split())))


def _words(inputs: Sequence[Path]) -> Iterator[str]:
    """Lines with single spaces; any other white space would become part of a word."""
    for path in inputs:
        for line in progress(read_lines(path), str(path), path):
            yield " ".join(line.split())
