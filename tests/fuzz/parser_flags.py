"""The flags that a command has on a command line, with their types and choices."""

import sys
import warnings
from argparse import Action, ArgumentParser
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any, NoReturn
from unittest import mock

from command_lines import CommandLine
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from in_process import _main, _state_restored


@dataclass(frozen=True)
class Flag:
    name: str
    kind: str  # the name of the function that converts a value
    takes_value: bool
    choices: tuple[str, ...]


class Parsed(BaseException):
    """The command line has been parsed."""


_known: dict[tuple[str, ...], list[Flag]] = {}


def flags_of(line: CommandLine) -> list[Flag]:
    """Those of the parser that reads the command line; none of fairseq-hydra-train."""
    key = _key(line)
    if key not in _known:
        _known[key] = [] if "hydra" in line.command else _ask(line)
    return _known[key]


def _key(line: CommandLine) -> tuple[str, ...]:
    if line.command == "memattn":
        return line.right[: 3 if line.right[0] == "prepare" else 1]
    chosen = ("--task", "--arch", "--criterion")
    words = zip(line.right, line.right[1:], strict=False)
    return (line.command, *(value for flag, value in words if flag in chosen))


def _ask(line: CommandLine) -> list[Flag]:
    """From the innermost parser. The command goes no further than its parsing."""
    found: list[ArgumentParser] = []
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings(action="ignore"))
        stack.enter_context(_state_restored())
        stack.enter_context(mock.patch.object(sys, "argv", [line.command, *line.right]))
        stack.enter_context(suppress(Parsed))
        if line.command in ("memattn", "fairseq-preprocess"):
            parsings = 2 if line.right[0] in ("prepare", "--user-dir") else 1
            parse = _recording(ArgumentParser.parse_known_args, found, parsings)
            stack.enter_context(mock.patch.object(ArgumentParser, "parse_known_args", parse))
        else:
            parse = _recording_fairseq(options.parse_args_and_arch, found)
            stack.enter_context(mock.patch.object(options, "parse_args_and_arch", parse))
        _main(line.command)()
    return [flag for action in found[-1]._actions for flag in _flags(action)]


def _recording(parse: Callable[..., Any], found: list[ArgumentParser], parsings: int) -> Any:
    """parse_known_args, which calls itself for subcommands, up to the last of `parsings` calls."""
    depth, done = 0, 0

    def parse_known_args(self: ArgumentParser, *args: Any, **kwargs: Any) -> Any:
        nonlocal depth, done
        found.append(self)
        depth += 1
        result = parse(self, *args, **kwargs)
        depth -= 1
        done += depth == 0
        if done == parsings:
            raise Parsed
        return result

    return parse_known_args


def _recording_fairseq(parse: Callable[..., Any], found: list[ArgumentParser]) -> Any:
    def parse_args_and_arch(parser: ArgumentParser, *args: Any, **kwargs: Any) -> NoReturn:
        found.append(parser)
        # What hydra parses here, it need not parse in forked processes.
        convert_namespace_to_omegaconf(parse(parser, *args, **kwargs))
        raise Parsed

    return parse_args_and_arch


def _flags(action: Action) -> list[Flag]:
    name = max(action.option_strings, key=len, default="")
    if not name.startswith("--"):
        return []
    choices = [str(choice) for choice in action.choices or ()]
    kind = getattr(action.type, "__name__", "str")
    return [Flag(name, kind, action.nargs != 0, tuple(choices))]
