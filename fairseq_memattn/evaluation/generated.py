"""Reading what `fairseq-generate` printed, without losing a line."""

import re
from pathlib import Path

# H-12<tab>-0.53<tab>the hypothesis; with several a sentence the best comes first.
HYPOTHESIS = re.compile(r"^H-(\d+)\t[^\t]+\t(.*)$")
BOUNDARY = "\u2581"  # SentencePiece's mark of a word's beginning


def read_lines(path: Path) -> list[str]:
    """The lines of a UTF-8 file, split at newlines alone.

    Raises ValueError that names file and line where the bytes are not UTF-8.
    """
    lines = []
    for number, raw in enumerate(path.read_bytes().removesuffix(b"\n").split(b"\n"), start=1):
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
    best: dict[int, str] = {}
    for line in read_lines(path):
        found = HYPOTHESIS.match(line)
        if found:
            best.setdefault(int(found[1]), found[2])
    if not best:
        raise ValueError(f"{path} has no line that starts with H-, as fairseq-generate prints them")
    if max(best) >= expected:
        raise ValueError(
            f"{path} has a hypothesis of sentence {max(best)} (from 0), but there are "
            f"{expected} references: it was generated from other data"
        )
    missing = [index for index in range(expected) if index not in best]
    if missing:
        raise ValueError(
            f"{path} has hypotheses of {len(best)} sentences where {expected} were expected, the "
            f"first missing one being number {missing[0]} (from 0); generate with "
            "--required-batch-size-multiple 1 and a sufficient --max-source-positions"
        )
    return [best[index] for index in range(expected)]


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
