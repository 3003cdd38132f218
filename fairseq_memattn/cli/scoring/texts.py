"""What `memattn score` and `memattn align` say of the texts that they compare."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from fairseq_memattn.evaluation.fairseq_output import signs_of_segmentation


def refuse_empty(references: Sequence[str], path: Path) -> None:
    empty = [number for number, line in enumerate(references, start=1) if not line.strip()]
    if empty:
        raise ValueError(
            f"--reference {path}, line {empty[0]}: there is no reference; {len(empty)} of "
            f"{len(references)} are empty"
        )


def warn_of_segmentation(texts: Mapping[str, list[str]]) -> None:
    for name, lines in texts.items():
        for reason in signs_of_segmentation(lines):
            print(
                f"warning: {name}: {reason}; scores are comparable only on detokenised text",
                file=sys.stderr,
            )
