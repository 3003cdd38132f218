"""Modules of 1.0 under their old names."""

from importlib import import_module
from importlib.util import find_spec

import pytest

from fairseq_memattn.moved import MOVED


def test_old_names():
    with pytest.warns(
        DeprecationWarning, match=r"compat has moved to fairseq_memattn\.host\.patches"
    ):
        from fairseq_memattn.compat import INSTALL, read_checkpoint
    assert read_checkpoint is import_module("fairseq_memattn.host.checkpoints").read_checkpoint
    assert "fairseq-fixed" in INSTALL
    with pytest.warns(DeprecationWarning):
        from fairseq_memattn.perplexity.by_position import LossByPosition
    assert LossByPosition
    with pytest.warns(DeprecationWarning):
        from fairseq_memattn.evaluation.exchanged import handle_exchanged
    assert handle_exchanged


def test_new_names():
    missing = [name for names in MOVED.values() for name in names.split() if not exists(name)]
    assert not missing


def exists(name: str) -> bool:
    return find_spec(f"fairseq_memattn.{name}") is not None
