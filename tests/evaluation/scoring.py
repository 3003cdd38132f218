"""Runs `memattn score` on texts of a test, and shows what it prints and writes."""

import json
from types import SimpleNamespace

from fairseq_memattn.cli import main


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
