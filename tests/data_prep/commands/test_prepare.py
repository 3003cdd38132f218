"""`memattn prepare`: every preparation by name, without what it does not need."""

import argparse
from pathlib import Path

import pytest

from fairseq_memattn.cli import main
from fairseq_memattn.data_prep import commands
from fairseq_memattn.data_prep.commands import PREPARATIONS

FOLDER = Path(commands.__file__).parent
MODULES = {name: name.replace("-", "_") for name in PREPARATIONS}


def test_every_script_is_listed() -> None:
    scripts = [path.stem for path in FOLDER.glob("[!_]*.py")]
    assert sorted(scripts) == sorted(MODULES.values())


def test_help_lists_every_preparation(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as status:
        main(["prepare", "--help"])
    assert status.value.code == 0
    shown = capsys.readouterr().out.splitlines()
    for name, summary in PREPARATIONS.items():
        assert [line.split(maxsplit=1) for line in shown].count([name, summary]) == 1
        assert summary and len(summary) <= 80


def test_help_of_a_preparation_shows_how_it_was_called() -> None:
    for name in PREPARATIONS:
        shown = commands.make_parser(name).format_help()
        assert shown.startswith(f"usage: memattn prepare {name} ")
        assert f"\n  memattn prepare {name} " in shown  # an example
        assert "%(" not in shown


# `documents check` writes nothing, `subword train` a model of a given --model.
WITHOUT_OUTPUT = ["documents check", "subword train"]


def leaves(parser: argparse.ArgumentParser, name: str) -> dict[str, argparse.ArgumentParser]:
    """The parsers of a command without subcommands, by name."""
    found = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for choice, below in action.choices.items():
                found |= leaves(below, f"{name} {choice}")
    return found or {name: parser}


def test_every_preparation_has_an_output() -> None:
    for name in PREPARATIONS:
        for command, parser in leaves(commands.make_parser(name), name).items():
            assert ("--output" in parser.format_help()) == (command not in WITHOUT_OUTPUT), command


def test_arguments_and_status_are_those_of_the_preparation(tmp_path, capsys):
    (tmp_path / "all.en").write_text("One.\nTwo.\n")
    (tmp_path / "all.docid").write_text("1\n1\n")
    check = ["prepare", "documents", "check", str(tmp_path / "all"), "--langs", "en"]
    assert main(check) == 0
    assert capsys.readouterr().out == "1 documents, 2 sentences, the longest document 2 (1)\n"
    assert main([*check, "en"]) == 1
    assert capsys.readouterr().err.startswith(
        "memattn prepare: error: --langs must name each language once"
    )
