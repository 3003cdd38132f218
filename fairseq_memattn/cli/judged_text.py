"""`memattn contrast --translations`: the accuracy of text on generative context sets."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from fairseq_memattn.cli.named_files import named_file
from fairseq_memattn.cli.outputs import check_outputs, write_json
from fairseq_memattn.evaluation.generative import (
    Example,
    accuracies,
    accuracies_text,
    judge_translations,
    sentence_splitter,
)
from fairseq_memattn.evaluation.generative_sets.ctxpro import read_ctxpro
from fairseq_memattn.evaluation.text_columns import file_of, read_column


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `run`."""
    group = parser.add_argument_group("generative sets (ctxpro), without a model")
    group.add_argument(
        "--translations",
        action="append",
        metavar="[NAME=]FILE",
        help="a system's translations of the sets, one a line, with or without their context; only "
        "the last sentence of a line is judged. May be repeated: the first system is the baseline "
        "that the others are compared with",
    )
    group.add_argument(
        "--lang",
        metavar="LANG",
        help="for --translations: the language of the text, such as de, by whose rules a line is "
        "split into sentences",
    )


def run(args: argparse.Namespace) -> None:
    """Prints and writes the accuracies of all systems."""
    _check(args)
    paths = _systems(args.translations)
    check_outputs({"--json": args.json}, [*args.sets, *paths.values()])
    examples = _read_sets(args.sets)
    split = sentence_splitter(args.lang)
    texts = {name: _read_text(path, len(examples)) for name, path in paths.items()}
    entries, baseline = [], None
    for name, lines in texts.items():
        verdicts = judge_translations(examples, lines, split)
        for entry in accuracies(examples, verdicts, baseline):
            entries.append({"system": name, **entry})
        baseline = baseline or verdicts
    print(accuracies_text(entries))
    print("an output is correct if its last sentence has the expected form, without case")
    if len(paths) > 1:
        print(f"p: McNemar's exact test against {next(iter(paths))}")
    if args.json:
        write_json(args.json, entries)


def _check(args: argparse.Namespace) -> None:
    if args.data is not None or args.path is not None or args.scores is not None:
        raise ValueError("--translations takes neither a model (data and --path) nor --scores")
    if args.lang is None:
        raise ValueError("--lang is missing; --translations needs the language of the text")


def _systems(given: Sequence[str]) -> Mapping[str, Path]:
    """The file of each system by its name, the baseline first."""
    paths: dict[str, Path] = {}
    for system in given:
        given_name, path = named_file("--translations", system)
        name = given_name or system
        if name in paths:
            raise ValueError(f"--translations {name} is given twice")
        if not file_of(path).is_file():
            raise ValueError(f"--translations {path}: there is no such file")
        paths[name] = path
    return paths


def _read_sets(paths: Sequence[Path]) -> list[Example]:
    examples: list[Example] = []
    for path in paths:
        if not path.is_file():
            raise ValueError(f"--sets {path}: there is no such file")
        read = read_ctxpro(path)
        if read[0].set in {example.set for example in examples}:
            raise ValueError(f"--sets: two sets have the name {read[0].set}")
        examples += read
    return examples


def _read_text(path: Path, expected: int) -> list[str]:
    """The lines of a file, as many as expected."""
    lines = read_column(path, "hyp")
    if len(lines) != expected:
        raise ValueError(
            f"--translations {path} has {len(lines)} lines, but --sets have {expected} examples"
        )
    empty = [number for number, line in enumerate(lines, start=1) if not line.strip()]
    if len(empty) == len(lines):
        raise ValueError(f"--translations {path} has no text")
    if empty:
        print(
            f"warning: {path}: {len(empty)} of {len(lines)} lines are empty, first line "
            f"{empty[0]}; they count as wrong",
            file=sys.stderr,
        )
    return lines
