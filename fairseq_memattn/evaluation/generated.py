"""Reading what `fairseq-generate` printed, without losing a line."""

import re
from pathlib import Path

# H-12<tab>-0.53<tab>the hypothesis; with several a sentence the best comes first.
HYPOTHESIS = re.compile(r"^H-(\d+)\t[^\t]+\t(.*)$")


def read_hypotheses(path: Path, expected: int) -> list[str]:
    """The best hypothesis of every sentence, in the order of the input.

    expected: how many sentences there are.
    Raises ValueError where any is missing: fairseq drops sentences whose batch is not a multiple
    of `--required-batch-size-multiple`, and those too long for the model.
    """
    best: dict[int, str] = {}
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            found = HYPOTHESIS.match(line)
            if found:
                best.setdefault(int(found[1]), found[2])
    missing = [index for index in range(expected) if index not in best]
    if missing or len(best) > expected:
        raise ValueError(
            f"{path} has hypotheses of {len(best)} sentences where {expected} were expected"
            + (f"; the first missing one is number {missing[0]} (from 0)" if missing else "")
            + "; generate with --required-batch-size-multiple 1 and a sufficient "
            "--max-source-positions, from the same data"
        )
    return [best[index] for index in range(expected)]


def detokenise_pieces(line: str) -> str:
    """SentencePiece's pieces, separated by spaces, as text."""
    return line.replace(" ", "").replace("\u2581", " ").strip()
