"""Runs `memattn score` on texts of a test, and shows what it prints and writes."""

import json
from types import SimpleNamespace

import pytest

from fairseq_memattn.cli import main, make_parser
from fairseq_memattn.cli.commands.score import check


def score(folder, capsys, texts, options):
    """Exit status, what was shown, and the JSON where it was written.

    texts: the lines of each file; options: text in which {d} is the folder
    """
    for name, lines in texts.items():
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    report = folder / "report.json"
    command = ["score", *options.format(d=folder).split(), "--json", str(report)]
    status = main(command)
    shown = capsys.readouterr()
    content = json.loads(report.read_text(encoding="utf-8")) if report.exists() else None
    return SimpleNamespace(status=status, out=shown.out, err=shown.err, report=content)


def refusal(options):
    """What `memattn score` says of options that do not work, before it reads anything."""
    args = make_parser(["score"]).parse_args(["score", *options.split()])
    args.reference, *args.more_references = args.reference
    with pytest.raises((ValueError, ImportError)) as error:
        check(args)
    return str(error.value)
