"""`memattn export --check` on a subset that the data do not have."""

import pytest
from tiny_roberta import export, prepare, registered

from fairseq_memattn.cli.commands import export as command


@pytest.mark.parametrize(
    ("flags", "told"),
    [(["--subset", "nine"], "subset nine"), ([], "valid and no test")],
)
def test_it_is_told_before_the_model_is_made(flags, told, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command, "load_model", pytest.fail)
    with registered():
        prepared = prepare(tmp_path)
        for path in () if flags else (prepared / "data" / "bin").glob("valid*"):
            path.unlink()
        assert export(prepared, tmp_path / "out", "--check", 1, *flags) == 1
    assert f"--check: the data have no {told}" in capsys.readouterr().err
