"""`memattn completion`: a script that completes the commands, options and files of memattn.

memattn completion bash > ~/.memattn.bash                      source it in ~/.bashrc
memattn completion zsh > ~/.zsh/_memattn                       in a folder of $fpath
memattn completion tcsh > ~/.memattn.tcsh                      source it in ~/.tcshrc
"""

import argparse
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from fairseq_memattn.cli.shared.options import Options

SHELLS = ("bash", "zsh", "tcsh")
PATHS = ("data", "path", "store", "user_dir")  # files and folders whose type is a string
ARCHITECTURES = {"archs": "names", "convert": "arch"}  # command -> its argument


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = Options(parser, __doc__)
    add("shell", ", ".join(SHELLS), choices=SHELLS, metavar="SHELL")


def run(args: argparse.Namespace) -> None:
    import shtab

    from fairseq_memattn.cli import COMMANDS, make_parser

    parser = make_parser([command for command in COMMANDS if command != "prepare"])
    add_preparations(dict(subparsers(parser))["prepare"])
    architectures = architecture_names()
    for command, subparser in subparsers(parser):
        for action in subparser._actions:
            if action.type is Path or action.dest in PATHS:
                action.complete = shtab.FILE  # type: ignore[attr-defined]
            if architectures and ARCHITECTURES.get(command) == action.dest:
                action.choices = architectures
    print(shtab.complete(parser, args.shell))


def add_preparations(parser: argparse.ArgumentParser) -> None:
    """The corpora of `memattn prepare` as commands of their own, with their options."""
    from fairseq_memattn.data_prep.commands import PREPARATIONS, make_parser

    corpora = parser.add_subparsers(metavar="CORPUS")
    for name, summary in PREPARATIONS.items():
        own = make_parser(name)
        corpora.add_parser(name, help=summary, parents=[own], add_help=False)


def subparsers(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """The names and parsers of the commands, and of the commands in them."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, one in action.choices.items():
                yield name, one
                yield from subparsers(one)


def architecture_names() -> list[str]:
    """The architectures of this plugin; none without fairseq."""
    if find_spec("fairseq") is None:
        return []
    import fairseq_memattn

    fairseq_memattn.register()
    from fairseq_memattn.cli.shared.architectures import architectures

    return [one.name for one in architectures()]
