"""Readers of contrastive sets, one file for each format. They return `contrastive.Group` objects.

To add a format, write a file with its two functions and add an entry to `SETS`.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from fairseq_memattn.evaluation.contrastive import Group
from fairseq_memattn.evaluation.contrastive_sets.contrapro import (
    contrapro_direction,
    is_contrapro,
    read_contrapro,
)
from fairseq_memattn.evaluation.contrastive_sets.disceval import (
    disceval_direction,
    is_disceval,
    read_disceval,
)
from fairseq_memattn.evaluation.contrastive_sets.voita import (
    is_voita,
    read_voita,
    read_voita_flat,
    voita_direction,
)
from fairseq_memattn.evaluation.directions import Direction, with_target

__all__ = [
    "SETS",
    "ContrastiveSet",
    "direction_of",
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
    direction: returns the languages of a path with these groups, as far as it knows them
    """

    layout: str
    recognises: Callable[[Path], bool]
    read: Callable[[Path], list[Group]]
    direction: Callable[[Path, Sequence[Group]], Direction] = lambda path, groups: (None, None)


# The first format that recognises a path reads it.
SETS = {
    "contrapro": ContrastiveSet(
        "a folder with NAME.text.LANG or NAME.current.LANG", is_contrapro, read_contrapro
    ),
    "disceval": ContrastiveSet(
        "a file with a JSON object", is_disceval, read_disceval, disceval_direction
    ),
    "voita": ContrastiveSet("a file with a JSON list", is_voita, read_voita, voita_direction),
}


def read_set(path: Path, language: str | None = None) -> list[Group]:
    """The groups of a set in any format of `SETS`. language: that of the target

    Raises ValueError for a path that no format recognises, and as the readers do.
    """
    for form in SETS.values():
        if form.recognises(path):
            of_folder = form.read is read_contrapro
            return read_contrapro(path, language=language) if of_folder else form.read(path)
    known = ", ".join(f"{form.layout} ({name})" for name, form in SETS.items())
    raise ValueError(f"{path} must be one of: {known}")


def direction_of(path: Path, groups: Sequence[Group], language: str | None = None) -> Direction:
    """The languages of a set. language: that of the target, if the user names it

    Raises ValueError for another language than that of the set.
    """
    form = next(form for form in SETS.values() if form.recognises(path))
    if form.read is read_contrapro:
        return with_target(path, contrapro_direction(path, language), language)
    return with_target(path, form.direction(path, groups), language)
