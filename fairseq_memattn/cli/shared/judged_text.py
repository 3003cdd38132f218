"""`memattn contrast --translations` and `--generate`: accuracies on generative context sets.

The text is in files, or the translation of a model. Without a model it needs neither torch nor
fairseq.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from fairseq_memattn.cli.shared import generated_text, models
from fairseq_memattn.cli.shared.inputs import named_file, require_file
from fairseq_memattn.cli.shared.options import Options
from fairseq_memattn.cli.shared.outputs import check_outputs, check_outside, columns_text, say
from fairseq_memattn.evaluation.generative import (
    SEPARATOR,
    Example,
    accuracies,
    accuracies_text,
    judge_translations,
    sentence_splitter,
)
from fairseq_memattn.evaluation.generative_sets import read_generative
from fairseq_memattn.evaluation.swapped_groups import DEFAULT
from fairseq_memattn.evaluation.text_columns import file_of, format_of, read_column
from fairseq_memattn.files import write_json, write_text
from fairseq_memattn.host.installation import require_fairseq


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `run`, but those of `--generate`."""
    add = Options(parser.add_argument_group("generative sets (ctxpro and GenPro), without a model"))
    add(
        "--translations",
        "a system's translations of the sets, one a line, with or without their context, or a "
        "column of a table, FILE.jsonl:KEY or FILE.tsv:COLUMN; only the last sentence of a line is "
        "judged. May be repeated: the first system is the baseline that the others, and the model "
        "of --generate, are compared with",
        action="append",
        metavar="[NAME=]FILE",
    )
    add(
        "--lang",
        "the language of the translations, such as de: by its rules a line is split into "
        "sentences (GenPro does not need it), and pronouns are found in a set whose files do not "
        "name it",
        metavar="LANG",
    )


def run(args: argparse.Namespace) -> None:
    paths = _systems(args.translations or ())
    _check(args, paths)
    sets: list[tuple[Path, list[Example]]] = []
    for path in args.sets:
        read = read_generative(path, args.lang)
        if read[0].set in {examples[0].set for _, examples in sets}:
            raise ValueError(f"--sets: two sets have the name {read[0].set}")
        sets.append((path, read))
    examples = [example for _, read in sets for example in read]
    # Without --lang, the sets have no text to split.
    split = sentence_splitter(args.lang) if args.lang else lambda text: [text]
    texts = {name: _read_text(path, examples) for name, path in paths.items()}
    if args.generate:
        examples = generated_text.with_sources(args, sets)
        kind = format_of(args.translations_out)
        columns = {"src": [f"{SEPARATOR} ".join(example.source) for example in examples]}
        # What the format cannot store is an error before the work.
        columns_text(columns, "src", kind)
        columns["hyp"] = generated_text.translations(args, examples)
        if args.translations_out:
            write_text(args.translations_out, columns_text(columns, "hyp", kind))
        texts[_model_name(args)] = columns["hyp"]
    entries, baseline = [], None
    for name, lines in texts.items():
        verdicts = judge_translations(examples, lines, split)
        for entry in accuracies(examples, verdicts, baseline):
            entries.append({"system": name, **entry})
        baseline = baseline or verdicts
    if args.json:
        write_json(args.json, entries)
    print(accuracies_text(entries))
    print("an output is correct if its last sentence has the expected form, without case")
    if len(texts) > 1:
        print(f"p: McNemar's exact test against {next(iter(texts))}")


def _check(args: argparse.Namespace, paths: Mapping[str, Path]) -> None:
    if args.generate and args.path is not None:
        require_fairseq("the command with a model")
    for path in args.sets:
        if not path.exists():
            raise ValueError(f"--sets {path}: there is no such file")
    if args.exchanged != DEFAULT:
        raise ValueError("--exchanged is for contrastive sets; generative sets have no groups")
    if args.generate:
        generated_text.check(args)
    elif args.data is not None or args.path is not None or args.scores is not None:
        raise ValueError(
            "--translations takes neither a model (data and --path) without --generate nor --scores"
        )
    if args.lang is None and not all(path.is_dir() for path in args.sets):
        raise ValueError("--lang is missing; JSON files of ctxpro need the language of the text")
    if args.generate and _model_name(args) in paths:
        raise ValueError(f"--translations {_model_name(args)} has the name of the model")
    model = models.folders(args.data) if args.data else []
    inputs = [*args.sets, *paths.values(), *model, *generated_text.inputs(args)]
    outputs = {"--json": args.json, "--translations-out": args.translations_out}
    check_outputs(outputs, inputs)
    check_outside(outputs, {"--sets": args.sets, "--documents": [args.documents]})


def _model_name(args: argparse.Namespace) -> str:
    return str(args.path or args.data)


def _systems(given: Sequence[str]) -> Mapping[str, Path]:
    """The file of each system by its name, the baseline first."""
    paths: dict[str, Path] = {}
    for system in given:
        given_name, path = named_file("--translations", system)
        name = given_name or system
        if name in paths:
            raise ValueError(f"--translations {name} is given twice")
        require_file("--translations", path, file_of(path))
        paths[name] = path
    return paths


def _read_text(path: Path, examples: Sequence[Example]) -> list[str]:
    """The lines of a file, one for each example."""
    lines = read_column(path, "hyp")
    if len(lines) != len(examples):
        raise ValueError(
            f"--translations {path} has {len(lines)} lines, but --sets have {len(examples)} "
            "examples"
        )
    empty = [number for number, line in enumerate(lines, start=1) if not line.strip()]
    if len(empty) == len(lines):
        raise ValueError(f"--translations {path} has no text")
    if empty:
        say(
            f"warning: {path}: {len(empty)} of {len(lines)} lines are empty, first line "
            f"{empty[0]}; they count as wrong"
        )
    pairs = zip(examples, lines, strict=True)
    pronouns = [line for example, line in pairs if example.pronoun is not None]
    if pronouns and not any(SEPARATOR in line for line in pronouns):
        say(f"{path}: no line of GenPro has {SEPARATOR}, so each line is judged as a whole")
    return lines
