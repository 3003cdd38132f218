"""Adds the options of a command to its parser, by what their values are."""

import argparse
from pathlib import Path
from typing import Any


class Options:
    """Adds options to a parser or a group. description: of the whole command, as it is laid out"""

    def __init__(self, parser: Any, description: str | None = None) -> None:
        self._add = parser.add_argument
        if description:
            parser.formatter_class = argparse.RawDescriptionHelpFormatter
            parser.description = description

    def __call__(self, name: str, help: str, **settings: Any) -> None:
        """settings: as argparse takes them"""
        self._add(name, help=help, **settings)

    def file(self, name: str, help: str, metavar: str = "FILE", **settings: Any) -> None:
        self._add(name, type=Path, metavar=metavar, help=help, **settings)

    def number(self, name: str, help: str, **settings: Any) -> None:
        self._add(name, type=int, metavar="N", help=help, **settings)

    def switch(self, name: str, help: str) -> None:
        self._add(name, action="store_true", help=help)
