"""The options that several preparations have, each declared once, and the types of arguments."""

from argparse import ArgumentParser, ArgumentTypeError, BooleanOptionalAction, _ArgumentGroup
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fairseq_memattn.data_prep.text.subword import (
    COVERAGE,
    IDENTITY,
    LONGEST,
    MODEL_TYPES,
    MOST_CHARACTERS,
    NORMALIZATIONS,
    SAMPLE,
)


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


OPTIONS: dict[str, dict[str, Any]] = {
    "--output": {"required": True, "type": Path, "metavar": "FOLDER", "help": "folder to write"},
    "--workers": {
        "type": positive,
        "default": 1,
        "metavar": "N",
        "help": "number of processes (default: 1); the result does not depend on it",
    },
    "--force": {
        "action": "store_true",
        "help": "replace output that was made from other input or options",
    },
    "--seed": {
        "type": int,
        "default": 1,
        "metavar": "N",
        "help": "seed of all random choices (default: %(default)s)",
    },
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
    "--archive": {
        "type": Path,
        "metavar": "FILE",
        "help": "a local copy of the archive, or a folder with its contents, instead of a download",
    },
    "--archives": {
        "type": Path,
        "default": [],
        "nargs": "+",
        "metavar": "FILE",
        "help": "local archives, with their official names; the others are downloaded",
    },
    "--unchecked": {
        "action": "store_true",
        "help": "accept archives and corpora whose size or checksum differs from the official one",
    },
    "--bpe-merges": {"type": positive, "metavar": "N", "help": "BPE merges (default: %(default)s)"},
    "--vocab-size": {
        "type": positive,
        "default": 8000,
        "metavar": "N",
        "help": "symbols of the SentencePiece model that is trained (default: %(default)s)",
    },
    "--model-type": {
        "choices": MODEL_TYPES,
        "default": MODEL_TYPES[0],
        "help": "segmentation algorithm of SentencePiece (default: %(default)s)",
    },
    "--normalization": {
        "choices": NORMALIZATIONS,
        "default": IDENTITY,
        "help": "what the model changes in text before it segments it: identity changes white "
        "space only, which becomes single spaces; the others are SentencePiece's rules, whose own "
        "default is nmt_nfkc: they replace characters such as ½ and ﬁ, so text that is restored "
        "from pieces differs from its original (default: %(default)s)",
    },
    "--split-digits": {
        "action": "store_true",
        "help": "make every digit a piece of its own",
    },
    "--byte-fallback": {
        "action": BooleanOptionalAction,
        "help": "spell characters that have no piece of their own in 256 pieces of bytes, so that "
        f"no text has <unk> (default: where a file has more than {MOST_CHARACTERS} different "
        "characters, as in Chinese)",
    },
    "--character-coverage": {
        "type": float,
        "metavar": "SHARE",
        "help": "share of the text's characters that the most frequent ones make up, which get a "
        f"piece of their own (default: {COVERAGE} with --byte-fallback, 1 without)",
    },
    "--max-sentence-length": {
        "type": positive,
        "default": LONGEST,
        "metavar": "BYTES",
        "help": "longer lines are left out of the training of SentencePiece, and a warning counts "
        "them (default: %(default)s)",
    },
    "--sample-lines": {
        "type": positive,
        "default": SAMPLE,
        "metavar": "N",
        "help": "lines that SentencePiece learns from, drawn at random where there are more, which "
        "bounds its memory (default: %(default)s)",
    },
    "--separator": {
        "type": separator_token,
        "default": "_eos",
        "metavar": "TOKEN",
        "help": "the token between the sentences of a window, which is not segmented "
        "(default: %(default)s)",
    },
    "--sentencepiece-model": {
        "type": Path,
        "metavar": "FILE",
        "help": "SentencePiece model of a pretrained model, with --dictionary",
    },
    "--dictionary": {
        "type": Path,
        "metavar": "FILE",
        "help": "dictionary of the pretrained model, as fairseq writes it (dict.txt)",
    },
}
COMMON = ("--output", "--workers", "--force")
SENTENCEPIECE = (
    "--model-type",
    "--normalization",
    "--split-digits",
    "--byte-fallback",
    "--character-coverage",
    "--max-sentence-length",
    "--sample-lines",
    "--separator",
)


def add_options(parser: ArgumentParser | _ArgumentGroup, *names: str, **changes: Any) -> None:
    """Add options of OPTIONS.

    changes: by an option's name other values of its keywords, and `also`, another name of it
    """
    for name in names:
        keywords = OPTIONS[name] | changes.get(name[2:].replace("-", "_"), {})
        options = ["--archive" if name == "--archives" else name, *keywords.pop("also", [])]
        parser.add_argument(*options, **keywords)


def add_numbers(parser: ArgumentParser, options: dict[str, tuple[Any, Any, str]]) -> None:
    for name, (kind, default, meaning) in options.items():
        help = f"{meaning} (default: %(default)s)"
        parser.add_argument(name, type=kind, default=default, metavar="N", help=help)
