"""The `memattn` command. A subcommand is one module with `add_arguments` and `run`."""

from __future__ import annotations

import argparse
import errno
import importlib
import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType

import fairseq_memattn
from fairseq_memattn.cli.commands import COMMANDS, WITH_MODELS, WITHOUT_FAIRSEQ
from fairseq_memattn.errors import TRACEBACK, like, unforeseen
from fairseq_memattn.host.installation import INSTALL, TORCH, require_fairseq
from fairseq_memattn.host.messages.handler import prepare_streams

LONGEST = 1500  # characters of an error, which may quote a line of a file


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand.

    The exit status is 0, 1 after a printed error, 2 for wrong usage, 130 after SIGINT (Ctrl-C), 141
    if the reader of the standard output has closed the pipe, or 143 after SIGTERM.
    """
    argv = sys.argv[1:] if argv is None else argv
    try:
        prepare_streams()
        _run(argv)
        sys.stdout.flush()
    except SystemExit:
        _end_output()
        raise
    except BrokenPipeError:
        # The reader, such as `head`, has closed the pipe: the rest of the output is discarded.
        _end_output()
        return 128 + signal.SIGPIPE
    except KeyboardInterrupt:
        return _fail(argv, "interrupted", 130)
    except OSError as error:
        told = str(error)
        # Python names no file where the standard output is full.
        if error.filename is None and error.errno in (errno.ENOSPC, errno.EDQUOT):
            told = f"the standard output cannot be written: {error.strerror}"
        return _fail(argv, f"error: {told}")
    except ModuleNotFoundError as error:
        from fairseq_memattn.cli.commands.doctor import remedy_for

        package = str(error.name).partition(".")[0]
        return _fail(argv, f"error: the package {package} is not installed: {remedy_for(package)}")
    except (ImportError, ValueError) as error:
        # Errors in files, options, data or the installation, which a user can correct.
        return _fail(argv, f"error: {error}")
    except Exception as error:
        return _fail(argv, f"error: {unforeseen(error)}")
    return 0


def make_parser(commands: Collection[str]) -> argparse.ArgumentParser:
    """The parser of `memattn`, with the options of these commands; their modules are imported."""
    parser = argparse.ArgumentParser(
        prog="memattn", description="Tools around fairseq_memattn's models and data."
    )
    version = f"fairseq-memattn {fairseq_memattn.__version__}"
    parser.add_argument(
        "--version", action="version", version=version, help="show the version and exit"
    )
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, summary in COMMANDS.items():
        subparser = subparsers.add_parser(name, help=summary, description=summary)
        if name in commands:
            _load(name).add_arguments(subparser)
            if name in WITH_MODELS:
                subparser.add_argument(
                    "--user-dir",
                    metavar="DIR",
                    help="a folder with controls or models of your own, as fairseq's commands "
                    "take it; this plugin's are known without it",
                )
    return parser


def _run(argv: Sequence[str]) -> None:
    parser = make_parser(argv[:1])
    if argv and not argv[0].startswith("-") and argv[0] not in COMMANDS:
        parser.error(f"there is no command {argv[0]}{like(argv[0], COMMANDS)}")
    args = parser.parse_args(argv)
    if args.command not in WITHOUT_FAIRSEQ:
        require_fairseq("the command")
        fairseq_memattn.register()
    logging.basicConfig(format="%(levelname)s: %(message)s")
    if getattr(args, "user_dir", None):
        fairseq_memattn.register()
        from fairseq.utils import import_user_module

        if not os.path.isdir(args.user_dir):
            raise FileNotFoundError(f"--user-dir {args.user_dir} is not a folder")
        import_user_module(args)
    with _unwinding_when_terminated():
        _load(args.command).run(args)


@contextmanager
def _unwinding_when_terminated() -> Iterator[None]:
    """SIGTERM and SIGHUP end the command by an exception, so that it removes its temporary files.

    A signal that the caller ignores or handles keeps its effect, as under `nohup`.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ours = [
        one for one in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(one) == signal.SIG_DFL
    ]

    def terminate(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    for one in ours:
        signal.signal(one, terminate)
    try:
        yield
    finally:
        for one in ours:
            signal.signal(one, signal.SIG_DFL)


def _fail(argv: Sequence[str], message: str, status: int = 1) -> int:
    """Prints the message, after the traceback of the error if the user asks for it."""
    if os.environ.get(TRACEBACK):
        traceback.print_exc()
    print(f"{' '.join(['memattn', *argv[:1]])}: {message[:LONGEST]}", file=sys.stderr)
    _end_output()
    return status


def _end_output() -> None:
    """Writes what was printed, or discards it where it cannot be written.

    Python would report it when it ends.
    """
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _load(name: str) -> ModuleType:
    try:
        return importlib.import_module(f"{__name__}.commands.{name.replace('-', '_')}")
    except ImportError as error:
        missing = f"run `pip install {TORCH}`" if name in WITHOUT_FAIRSEQ else INSTALL
        raise SystemExit(f"memattn {name}: error: {error}; {missing}") from None
