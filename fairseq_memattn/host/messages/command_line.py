"""Errors of command lines, of fairseq's commands and of `memattn`."""

from __future__ import annotations

import argparse
import functools
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from fairseq_memattn.errors import MemAttnError, like

MOST_CHOICES = 200  # characters of the choices of an option in an error message
REQUIRED = re.compile("the following arguments are required: |one of the arguments .* is required$")


def explain_command_lines() -> None:
    """Lets fairseq's parsers name what is missing, and the names that are like an unknown one."""
    from fairseq import options

    options.parse_args_and_arch = _with_names(options.parse_args_and_arch)


def _with_names(parse: Callable[..., Any]) -> Callable[..., Any]:
    """`parse_args_and_arch`, which looks up --task and --arch without asking if they are given."""

    @functools.wraps(parse)
    def parse_args_and_arch(parser: argparse.ArgumentParser, *args: Any, **kwargs: Any) -> Any:
        parser.error = functools.partial(_end, parser)  # type: ignore[method-assign]
        try:
            return parse(parser, *args, **kwargs)
        except KeyError as error:
            if error.args == (None,):
                raise MemAttnError("--task must be given") from error
            raise
        except RuntimeError as error:
            if not error.args:
                raise MemAttnError("--arch must be given") from error
            raise

    return parse_args_and_arch


def _end(parser: argparse.ArgumentParser, message: str) -> NoReturn:
    """`ArgumentParser.error` without the usage of fairseq's hundreds of options."""
    parser.exit(2, f"{parser.prog}: error: {_explained(parser, message)}\n")


class CommandParser(argparse.ArgumentParser):
    """The parser of a command: it names what is like an unknown option or choice.

    Where nothing is, it lists all choices. An unknown option is told before a missing one, which it
    may be.
    """

    _given: Sequence[str] = ()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Unknown options are errors of the subcommand, which has options like them."""
        self._given = [*(sys.argv[1:] if args is None else args)]
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(_unrecognized(unknown))
        return found, unknown

    def error(self, message: str) -> NoReturn:
        if REQUIRED.match(message):
            with _without_requirements(self):
                _, unknown = super().parse_known_args(self._given)
            if any(word.startswith("-") for word in unknown):
                message = _unrecognized(unknown)
        explained = _explained(self, message)
        super().error(explained if "the most similar" in explained else message)


@contextmanager
def _without_requirements(parser: argparse.ArgumentParser) -> Iterator[None]:
    """A parser that requires nothing in the body."""
    parts: list[Any] = [*parser._actions, *parser._mutually_exclusive_groups]
    before = [part.required for part in parts]
    for part in parts:
        part.required = False
    try:
        yield
    finally:
        for part, required in zip(parts, before, strict=True):
            part.required = required


def _unrecognized(arguments: Sequence[str]) -> str:
    return f"unrecognized arguments: {' '.join(arguments)}"


def _explained(parser: argparse.ArgumentParser, message: str) -> str:
    for explain in (_of_choices, _of_lists, _of_flags):
        message = explain(parser, message)
    return message


def _of_choices(parser: argparse.ArgumentParser, message: str) -> str:
    """Of hundreds of choices, only those are told that are like the given one."""
    found = re.search(r"invalid choice: (.*) \(choose from (.*)\)$", message, re.DOTALL)
    if found is None or len(found[2]) <= MOST_CHOICES:
        return message
    told = like(found[1][1:-1], re.findall(r"[^\s',]+", found[2]))
    return f"{message[: found.start(2)].removesuffix(' (choose from ')}{told}"


def _of_lists(parser: argparse.ArgumentParser, message: str) -> str:
    """fairseq evaluates the values of a list in functions without a name."""
    return re.sub(
        r"^argument (\S+?)(?:/\S+)?: invalid <lambda> value: (.*)$",
        r"\1 must be a number or a list of numbers, such as 0.5 or [0.5,0.25], but is \2",
        message,
        flags=re.DOTALL,
    )


def _of_flags(parser: argparse.ArgumentParser, message: str) -> str:
    """The flags that are like those that the parser does not know."""
    if not message.startswith("unrecognized arguments: "):
        return message
    words = [word.partition("=")[0] for word in message.split() if word.startswith("--")]
    flags = dict.fromkeys(words)
    known = [name for name in parser._option_string_actions if name.startswith("--")]
    return message + "".join(like(name, known, repeated=len(flags) > 1) for name in flags)
