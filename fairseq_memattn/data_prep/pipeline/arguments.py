"""The options that several preparations have, each declared once, and the types of arguments."""

from argparse import ArgumentParser, ArgumentTypeError, BooleanOptionalAction, _ArgumentGroup
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fairseq_memattn.data_prep.text import subword


def positive(value: str) -> int:
    if not value.isdecimal() or int(value) < 1:
        raise ArgumentTypeError(f"must be an integer of at least 1, but is {value!r}")
    return int(value)


def separator_token(value: str) -> str:
    if value.split() != [value]:
        raise ArgumentTypeError(f"must be one token without spaces, but is {value!r}")
    return value


def name_and(kind: str, of_value: Callable[[str], Any] = Path) -> Callable[[str], tuple[str, Any]]:
    """The type of NAME=VALUE. kind: this form in errors, such as SPLIT=FILE"""

    def parse(given: str) -> tuple[str, Any]:
        name, _, value = given.partition("=")
        if not (name and value):
            raise ArgumentTypeError(f"must be {kind}, but is {given!r}")
        return name, of_value(value)

    return parse


def file(help: str, metavar: str = "FILE", **more: Any) -> dict[str, Any]:
    return {"type": Path, "metavar": metavar, "help": help, **more}


def number(
    help: str, default: int | None = None, metavar: str = "N", **more: Any
) -> dict[str, Any]:
    return {"type": positive, "default": default, "metavar": metavar, "help": help, **more}


def switch(help: str) -> dict[str, Any]:
    return {"action": "store_true", "help": help}


# The keywords of argparse for each option.
OPTIONS: dict[str, dict[str, Any]] = {
    "--output": file("folder to write", "FOLDER", required=True),
    "--workers": number("number of processes (default: 1); the result does not depend on it", 1),
    "--force": switch("replace output that was made from other input or options"),
    "--seed": number("seed of all random choices (default: %(default)s)", 1, type=int),
    "--text": {
        "required": True,
        "nargs": "+",
        "type": name_and("SPLIT=PREFIX"),
        "metavar": "SPLIT=PREFIX",
        "help": "prefix of the text of train, valid, test, train1, valid1, ...; reads PREFIX.LANG",
    },
    "--langs": {
        "required": True,
        "nargs": "+",
        "metavar": "LANG",
        "help": "source and target, or one language for language modelling",
    },
    "--archive": file(
        "a local copy of the archive, or a folder with its contents, instead of a download"
    ),
    "--archives": file(
        "local archives, with their official names; the others are downloaded",
        default=[],
        nargs="+",
    ),
    "--unchecked": switch(
        "accept archives and corpora whose size or checksum differs from the official one"
    ),
    "--bpe-merges": number("BPE merges (default: %(default)s)"),
    "--vocab-size": number(
        "symbols of the SentencePiece model that is trained (default: %(default)s)", 8000
    ),
    "--model-type": {
        "choices": subword.MODEL_TYPES,
        "default": subword.MODEL_TYPES[0],
        "help": "segmentation algorithm of SentencePiece (default: %(default)s)",
    },
    "--normalization": {
        "choices": subword.NORMALIZATIONS,
        "default": subword.IDENTITY,
        "help": "what the model changes in text before it segments it: identity changes white "
        "space only, which becomes single spaces; the others are SentencePiece's rules, whose own "
        "default is nmt_nfkc: they replace characters such as ½ and ﬁ, so text that is restored "
        "from pieces differs from its original (default: %(default)s)",
    },
    "--split-digits": switch("make every digit a piece of its own"),
    "--byte-fallback": {
        "action": BooleanOptionalAction,
        "help": "spell characters that have no piece of their own in 256 pieces of bytes, so that "
        f"no text has <unk> (default: where a file has more than {subword.MOST_CHARACTERS} "
        "different characters, as in Chinese)",
    },
    "--character-coverage": {
        "type": float,
        "metavar": "SHARE",
        "help": "share of the text's characters that the most frequent ones make up, which get a "
        f"piece of their own (default: {subword.COVERAGE} with --byte-fallback, 1 without)",
    },
    "--max-sentence-length": number(
        "longer lines are left out of the training of SentencePiece, and a warning counts them "
        "(default: %(default)s)",
        subword.LONGEST,
        "BYTES",
    ),
    "--sample-lines": number(
        "lines that SentencePiece learns from, drawn at random where there are more, which bounds "
        "its memory (default: %(default)s)",
        subword.SAMPLE,
    ),
    "--separator": {
        "type": separator_token,
        "default": "_eos",
        "metavar": "TOKEN",
        "help": "the token between the sentences of a window, which is not segmented "
        "(default: %(default)s)",
    },
    "--sentencepiece-model": file("SentencePiece model of a pretrained model, with --dictionary"),
    "--dictionary": file("dictionary of the pretrained model, as fairseq writes it (dict.txt)"),
}
COMMON = ("--output", "--workers", "--force")
SENTENCEPIECE = (
    *("--model-type", "--normalization", "--split-digits", "--byte-fallback"),
    *("--character-coverage", "--max-sentence-length", "--sample-lines", "--separator"),
)


def add_options(parser: ArgumentParser | _ArgumentGroup, *names: str, **changes: Any) -> None:
    """Add options of OPTIONS.

    changes: by an option's name other values of its keywords, and `also`, another name of it
    """
    for name in names:
        keywords = OPTIONS[name] | changes.get(name[2:].replace("-", "_"), {})
        options = ["--archive" if name == "--archives" else name, *keywords.pop("also", [])]
        parser.add_argument(*options, **keywords)


def add_switches(parser: ArgumentParser | _ArgumentGroup, options: dict[str, str]) -> None:
    for name, meaning in options.items():
        parser.add_argument(name, **switch(meaning))


def add_numbers(parser: ArgumentParser, options: dict[str, tuple[Any, Any, str]]) -> None:
    for name, (kind, default, meaning) in options.items():
        help = f"{meaning} (default: %(default)s)"
        parser.add_argument(name, type=kind, default=default, metavar="N", help=help)
