"""Readers of generative context sets, one file for each format."""

from pathlib import Path

from fairseq_memattn.evaluation.generative import Example
from fairseq_memattn.evaluation.generative_sets.ctxpro import read_ctxpro
from fairseq_memattn.evaluation.generative_sets.genpro import read_genpro


def read_generative(path: Path) -> list[Example]:
    """The examples of a folder in the layout of ContraPro, or of a JSON file of ctxpro.

    Raises ValueError, which names the file and the place.
    """
    return read_genpro(path) if path.is_dir() else read_ctxpro(path)
