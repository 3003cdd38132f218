"""Errors of the command line, before a command begins."""

import pytest
from fairseq import options
from harness import TRANSLATOR

from fairseq_memattn.cli import main as memattn


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("--lr 0,001", "--lr must be a number or a list of numbers, such as 0.5 or [0.5,0.25], "),
        ("--update-freq x", "--update-freq must be a number or a list of numbers, such as 0.5 or"),
        (
            "--max-token=3",
            "unrecognized arguments: --max-token=3; the most similar are --max-tokens, --max-tok",
        ),
        ("--xyzzy", "unrecognized arguments: --xyzzy"),
        (
            "--max-token 3 --xyzzy --update-freqs 2",
            "unrecognized arguments: --max-token 3 --xyzzy --update-freqs 2; the most similar to "
            "--max-token are --max-tokens, --max-tokens-valid; the most similar to --update-freqs "
            "are --update-freq, ",
        ),
        ("--max-tokens many", "argument --max-tokens: invalid int value: 'many'"),
        (
            "--arch abc_mlp_transformr",
            "argument --arch/-a: invalid choice: 'abc_mlp_transformr'; t",
        ),
    ],
)
def test_refused(flags, words, capsys, monkeypatch):
    argv = ["bin", *TRANSLATOR, *flags.split()]
    monkeypatch.setattr("sys.argv", ["fairseq-train", *argv])
    with pytest.raises(SystemExit) as info:
        options.parse_args_and_arch(options.get_training_parser())
    assert info.value.code == 2
    *_, last = capsys.readouterr().err.splitlines()
    assert f"error: {words}" in last


def test_an_unknown_command_of_memattn(capsys):
    with pytest.raises(SystemExit, match="2"):
        memattn(["translat", "FOLDER"])
    told = capsys.readouterr().err.splitlines()[-1]
    assert told == "memattn: error: there is no command translat; the most similar is translate"
