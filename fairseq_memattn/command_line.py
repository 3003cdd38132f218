"""Errors of the command lines of fairseq's commands."""

from __future__ import annotations

import argparse
import functools
import re
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any, NoReturn

from fairseq_memattn.errors import MemAttnError

MOST_CHOICES = 200  # characters of the choices of an option in an error message


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
    """`ArgumentParser.error` without the usage of fairseq's hundreds of options.

    Of hundreds of choices, only those are told that are like the given one.
    """
    found = re.search(r"invalid choice: (.*) \(choose from (.*)\)$", message, re.DOTALL)
    if found and len(found[2]) > MOST_CHOICES:
        close = get_close_matches(found[1][1:-1], re.findall(r"[^\s',]+", found[2]))
        told = f"; the most similar are {', '.join(close)}" if close else ""
        message = f"{message[: found.start(2)].removesuffix(' (choose from ')}{told}"
    parser.exit(2, f"{parser.prog}: error: {message}\n")
