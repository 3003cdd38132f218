"""Puts this folder, with what its tests share, on the path."""

import pytest

from fairseq_memattn.data_prep.pipeline import text_to_binary


@pytest.fixture
def no_binarising(monkeypatch: pytest.MonkeyPatch) -> None:
    """A preparation ends with its text, as if that were binarised."""
    monkeypatch.setattr(text_to_binary, "binarise", lambda *_, **__: True)
