"""Writes the pages of the site that list options, and what is replaced in fairseq, into a folder.

    python docs/site/options.py FOLDER

A program of its own, because fairseq enables all log messages.
"""

import sys
from argparse import SUPPRESS, Action, ArgumentParser
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fairseq.tasks import TASK_REGISTRY

import fairseq_memattn
from fairseq_memattn.cli import COMMANDS, make_parser
from fairseq_memattn.cli.commands.archs import as_json, matching
from fairseq_memattn.cli.shared.architectures import architectures
from fairseq_memattn.data_prep.commands import PREPARATIONS
from fairseq_memattn.data_prep.commands import make_parser as make_preparation_parser
from fairseq_memattn.host.patches import table

SHOWN = ("abc_mlp_*", "gmat_*", "t5*")  # one of the controls stands for all
HEAD = ("", "| option | default | meaning |", "| --- | --- | --- |")
ARCHITECTURES = """\
`memattn archs NAME` prints the same, and with `--all-flags` those of fairseq's models as well. In
place of CONTROL stands `abc_` and one of the [controls](../docs/controls.md#controls), as in
`abc_mlp_transformer`, or [kernel attention](../docs/controls.md#kernel-attention), as in
`elu_transformer`. Some controls have further flags, which are listed with them."""


def flags() -> Iterator[str]:
    yield from ("# Flags by architecture", "", ARCHITECTURES)
    for one in map(as_json, matching(architectures(), SHOWN)):
        sizes = f"{one['layers']} layers of {one['size']}, feed-forward {one['feed_forward']}"
        yield from (
            "",
            f"## `{one['pattern']}`",
            "",
            f"{one['summary']} {one['kind'].capitalize()}, ",
        )
        yield from (f"{sizes}, {one['heads']} heads.", *HEAD)
        for option in one["flags"]:
            if option["own"]:
                yield row(option["flag"], option["default"], option["help"], option["choices"])


def tasks() -> Iterator[str]:
    yield from ("# Flags of tasks", "", "Those of this plugin's `--task NAME`.")
    for name, task in sorted(TASK_REGISTRY.items()):
        if task.__module__.startswith("fairseq_memattn"):
            parser = ArgumentParser(conflict_handler="resolve", add_help=False)
            task.add_args(parser)
            yield from ("", f"## `{name}`", *listed(parser))


def commands() -> Iterator[str]:
    yield from ("# Options of commands", "", "As `memattn COMMAND --help` prints them.")
    parsers: Any = make_parser(list(COMMANDS))._subparsers
    for name, parser in parsers._group_actions[0].choices.items():
        if name != "prepare":
            yield from ("", f"## `memattn {name}`", "", f"{COMMANDS[name]}.", *listed(parser))


def preparations() -> Iterator[str]:
    yield from ("# Options of preparations", "", "As `memattn prepare NAME --help` prints them.")
    for name, summary in PREPARATIONS.items():
        yield from ("", f"## `memattn prepare {name}`", "", f"{summary}.")
        yield from listed(make_preparation_parser(name))


def patches() -> Iterator[str]:
    yield from ("# What is replaced in fairseq", "", "As `memattn doctor` prints it.")
    yield from ("", "| replaced | reason | what for |", "| --- | --- | --- |")
    for name, reason, optional, what in table():
        shown = name if " " in name else f"`{name}`"
        yield f"| {shown} | {reason}{', optional' * optional} | {what} |"


def listed(parser: ArgumentParser) -> Iterator[str]:
    """The options of a parser as a table, and those of its subcommands."""
    rows, below = [], []
    for action in parser._actions:
        if isinstance(action.choices, dict):
            below = [(name, each) for name, each in action.choices.items()]
        elif action.help != SUPPRESS and "--help" not in action.option_strings:
            help_text = parser._get_formatter()._expand_help(action) if action.help else ""
            rows.append(row(named(action), default_of(action), help_text, action.choices or ()))
    if rows:
        yield from (*HEAD, *rows)
    for name, each in below:
        yield from ("", f"`{name}`:", *listed(each))


def named(action: Action) -> str:
    if not action.option_strings:
        return str(action.metavar or action.dest)
    value = action.metavar if action.nargs != 0 and isinstance(action.metavar, str) else ""
    return f"{action.option_strings[-1]} {value}".strip()


def default_of(action: Action) -> object:
    return "" if action.default is SUPPRESS or isinstance(action.default, bool) else action.default


def row(name: str, value: object, help_text: str, choices: Any) -> str:
    default = "" if value in (None, "", [], ()) else f"`{value}`"
    if choices and str(next(iter(choices))) not in help_text:
        help_text += f" ({', '.join(map(str, choices))})"
    help_text = help_text.replace(f" (default: {default.strip('`')})", "").replace("<", "&lt;")
    cells = (f"`{name}`", default, help_text)
    return f"| {' | '.join(' '.join(cell.split()).replace('|', chr(92) + '|') for cell in cells)} |"


if __name__ == "__main__":
    fairseq_memattn.register()
    for page in (flags, tasks, commands, preparations, patches):
        path = Path(sys.argv[1], f"{page.__name__}.md")
        path.write_text("\n".join([*page(), ""]), "utf-8")
