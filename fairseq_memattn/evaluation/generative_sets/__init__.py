"""Readers of generative context sets, one file for each format."""

from pathlib import Path

from fairseq_memattn.evaluation.contrastive_sets.contrapro import contrapro_direction
from fairseq_memattn.evaluation.directions import Direction, pair_in_name, with_target
from fairseq_memattn.evaluation.generative import Example
from fairseq_memattn.evaluation.generative_sets.ctxpro import read_ctxpro
from fairseq_memattn.evaluation.generative_sets.genpro import read_genpro


def read_generative(path: Path, language: str | None = None) -> list[Example]:
    """The examples of a folder in the layout of ContraPro, or of a JSON file of ctxpro.

    language: that of the target

    Raises ValueError, which names the file and the place.
    """
    return read_genpro(path, language) if path.is_dir() else read_ctxpro(path)


def direction_of(path: Path, language: str | None = None) -> Direction:
    """The languages of a set. Raises ValueError if --lang, `language`, is another one."""
    known = contrapro_direction(path, language) if path.is_dir() else pair_in_name(path)
    return with_target(path, known, language)
