"""Readers of contrastive sets, one file for each format. They return `contrastive.Group` objects.

To add a format, write a file with its two functions and add an entry to `SETS`.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from fairseq_memattn.evaluation.contrastive import Group
from fairseq_memattn.evaluation.contrastive_sets.contrapro import is_contrapro, read_contrapro
from fairseq_memattn.evaluation.contrastive_sets.disceval import is_disceval, read_disceval
from fairseq_memattn.evaluation.contrastive_sets.voita import (
    is_voita,
    read_voita,
    read_voita_flat,
)

__all__ = [
    "SETS",
    "ContrastiveSet",
    "read_contrapro",
    "read_disceval",
    "read_set",
    "read_voita",
    "read_voita_flat",
]


class ContrastiveSet(NamedTuple):
    """A format of contrastive sets.

    layout: what a path of this format is, for error messages
    recognises: returns whether an existing path has this format
    read: returns the groups of a path; raises ValueError, which names the file and the place
    """

    layout: str
    recognises: Callable[[Path], bool]
    read: Callable[[Path], list[Group]]


# The first format that recognises a path reads it.
SETS = {
    "contrapro": ContrastiveSet(
        "a folder with NAME.text.LANG or NAME.current.LANG", is_contrapro, read_contrapro
    ),
    "disceval": ContrastiveSet("a file with a JSON object", is_disceval, read_disceval),
    "voita": ContrastiveSet("a file with a JSON list", is_voita, read_voita),
}


def read_set(path: Path) -> list[Group]:
    """The groups of a set in any format of `SETS`.

    Raises ValueError for a path that no format recognises, and as the readers do.
    """
    for form in SETS.values():
        if form.recognises(path):
            return form.read(path)
    known = ", ".join(f"{form.layout} ({name})" for name, form in SETS.items())
    raise ValueError(f"{path} must be one of: {known}")
