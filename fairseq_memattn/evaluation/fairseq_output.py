"""Reading translations, what `fairseq-generate` printed above all, without losing a line."""

import re
from codecs import BOM_UTF8
from collections.abc import Iterable, Sequence
from pathlib import Path

# H-12<tab>-0.53<tab>the hypothesis; with several a sentence the best comes first.
HYPOTHESIS = re.compile(r"^H-(\d+)\t[^\t]+\t(.*)$")
GENERATED = re.compile(r"^[STHDP]-\d+\t")
BOUNDARY = "\u2581"  # SentencePiece's mark of a word's beginning
SUBWORD_NMT = re.compile(r"@@(?: |$)")


def read_lines(path: Path) -> list[str]:
    """The lines of a UTF-8 file, split at newlines alone.

    Raises ValueError that names file and line where the bytes are not UTF-8, and for a byte-order
    mark, which would be taken for text.
    """
    content = path.read_bytes()
    if content.startswith(BOM_UTF8):
        raise ValueError(f"{path}, line 1: begins with a byte-order mark; save it without")
    lines: list[str] = []
    if not content:
        return lines
    for number, raw in enumerate(content.removesuffix(b"\n").split(b"\n"), start=1):
        try:
            lines.append(raw.decode("utf-8").removesuffix("\r"))
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{path}, line {number}: not UTF-8 at byte {error.start + 1} of the line"
            ) from None
    return lines


def read_hypotheses(path: Path, expected: int) -> list[str]:
    """The best hypothesis of every sentence, in the order of the input.

    expected: how many sentences there are.
    Raises ValueError where any is missing: fairseq drops sentences whose batch is not a multiple
    of `--required-batch-size-multiple`, and those too long for the model.
    """
    return read_shards([path], expected)


def read_shards(paths: Sequence[Path], expected: int) -> list[str]:
    """`read_hypotheses` of a test set whose shards were generated apart, each into its file."""
    best: dict[int, str] = {}
    for path in paths:
        for number, hypothesis in _best_hypotheses(path).items():
            if number in best:
                raise ValueError(
                    f"{path} has a hypothesis of sentence {number} (from 0), which is in another "
                    "of the files, too"
                )
            best[number] = hypothesis
    name, has = str(paths[0]), "has"
    if len(paths) > 1:
        name, has = f"{paths[0]} and {len(paths) - 1} more", "have"
    if max(best) >= expected:
        raise ValueError(
            f"{name} {has} a hypothesis of sentence {max(best)} (from 0), but there are "
            f"{expected} references: it was generated from other data"
        )
    missing = [index for index in range(expected) if index not in best]
    if missing:
        raise ValueError(
            f"{name} {has} hypotheses of {len(best)} sentences where {expected} were expected, the "
            f"first missing one being number {missing[0]} (from 0); generate with "
            "--required-batch-size-multiple 1 and a sufficient --max-source-positions"
        )
    return [best[index] for index in range(expected)]


def _best_hypotheses(path: Path) -> dict[int, str]:
    best: dict[int, str] = {}
    last = -1
    for line in read_lines(path):
        found = HYPOTHESIS.match(line)
        if found:
            number = int(found[1])
            if number in best and number != last:
                raise ValueError(
                    f"{path} has hypotheses of sentence {number} (from 0) in two places: was "
                    "more than one output put into it?"
                )
            best.setdefault(number, found[2])
            last = number
    if not best:
        raise ValueError(f"{path} has no line that starts with H-, as fairseq-generate prints them")
    return best


def read_translations(path: Path, expected: int, separator: str | None) -> list[str]:
    """The text that fairseq-generate printed, its pieces joined, or else the file's own lines.

    expected: how many sentences there are; separator: as in `detokenise`
    Raises ValueError where the file has another number.
    """
    lines = read_lines(path)
    if any(GENERATED.match(line) for line in lines):
        return detokenise(read_hypotheses(path, expected), separator)
    if len(lines) != expected:
        raise ValueError(f"{path} has {len(lines)} lines, but there are {expected} references")
    return lines


def signs_of_segmentation(lines: list[str]) -> list[str]:
    """Why the lines do not look like detokenised text: a clause with counts for each reason."""
    reasons = []
    for what, numbers, tolerated in (
        (f"hold SentencePiece's mark {BOUNDARY}", _numbers(BOUNDARY in line for line in lines), 0),
        ("hold subword-nmt's mark @@", _numbers(SUBWORD_NMT.search(line) for line in lines), 0),
        # People write that too, but not often.
        (
            "end in a full stop behind a space",
            _numbers(line.endswith(" .") for line in lines),
            len(lines) // 10,
        ),
    ):
        if len(numbers) > tolerated:
            reasons.append(f"{len(numbers)} of {len(lines)} lines {what}, first line {numbers[0]}")
    return reasons


def _numbers(found: Iterable[object]) -> list[int]:
    return [number for number, yes in enumerate(found, start=1) if yes]


def detokenise(lines: list[str], separator: str | None) -> list[str]:
    """Text from SentencePiece's pieces; lines without any piece are text already.

    separator: a token that keeps a space on either side, however it was segmented.
    """
    if not any(BOUNDARY in line for line in lines):
        return lines
    return [_join_pieces(line, separator) for line in lines]


def _join_pieces(line: str, separator: str | None) -> str:
    sentences: list[list[str]] = [[]]
    for piece in line.split():
        if separator is not None and piece.removeprefix(BOUNDARY) == separator:
            sentences.append([])
        else:
            sentences[-1].append(piece)
    texts = ("".join(pieces).replace(BOUNDARY, " ").strip() for pieces in sentences)
    return f" {separator} ".join(texts).strip()
