"""`memattn completion`: a script that completes the commands, options and files of memattn.

eval "$(memattn completion bash)"                              in ~/.bashrc
memattn completion zsh > ~/.zsh/_memattn                       in a folder of $fpath
memattn completion tcsh > ~/.memattn.tcsh                      source it in ~/.tcshrc
"""

import argparse
from pathlib import Path

SHELLS = ("bash", "zsh", "tcsh")
PATHS = ("data", "path", "store", "user_dir")  # files and folders whose type is a string


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = __doc__
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=", ".join(SHELLS))


def run(args: argparse.Namespace) -> None:
    import shtab

    from fairseq_memattn.cli import COMMANDS, make_parser

    parser = make_parser(COMMANDS)
    for subparser in subparsers(parser):
        for action in subparser._actions:
            if action.type is Path or action.dest in PATHS:
                action.complete = shtab.FILE  # type: ignore[attr-defined]
    print(shtab.complete(parser, args.shell))


def subparsers(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    (commands,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    return list(commands.choices.values())
