"""`memattn view`: a page that shows what a translation model attends to in a document.

    memattn view bin --path model.pt --document 3 --output document.html
    memattn view bin --path model.pt --text text.de --sentencepiece-model spm.model \\
        --output document.html

The page has the document beside its translation. With the pointer on a token of the translation,
it shows the weights of the source tokens, context included, and of the memory slots; for T5Mem
those of the sentences. It is one file, without anything from elsewhere.
"""

import argparse
import json
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairseq_memattn.cli.shared import models, segmentation
from fairseq_memattn.cli.shared.generated_text import SEARCH, add_search, check_search, search_of
from fairseq_memattn.cli.shared.inputs import check_given, read_texts, refuse_unused, same_lines
from fairseq_memattn.cli.shared.options import Options
from fairseq_memattn.cli.shared.outputs import check_outputs, say
from fairseq_memattn.cli.shared.texts import words
from fairseq_memattn.files import write_text

if TYPE_CHECKING:
    from torch import Tensor

SUBSET = "test"
DATA = "/*DATA*/null"  # in the template


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = Options(parser, __doc__)
    models.add_arguments(parser)
    add("--subset", f"split of the data with the document (default: {SUBSET})")
    add.number("--document", "number of the document in --subset, from 0 (default: 0)")
    add.file("--text", "the document as raw text, one sentence a line, in place of one of --subset")
    add.file(
        "--target", "with --text: its translation, one sentence a line (default: the model's own)"
    )
    add.switch(
        "--reference",
        "with a document of --subset: its reference in place of the model's own translation",
    )
    segmentation.add_arguments(parser)
    add_search(add)
    add("--output", "page to write, a .html", type=Path, required=True)


def run(args: argparse.Namespace) -> None:
    check(args)
    segment = segmentation.segmenter(args)
    lines = read_lines(args)
    loaded = models.load(args)
    if len(loaded.models) > 1:
        raise ValueError(f"--path must be one checkpoint, but is {args.path}")
    if loaded.streams:
        raise ValueError(
            f"--path {args.path}: trained with --stream; memattn view shows windows of sentences"
        )
    source, target = encoded(loaded, lines, segment) if lines else of_subset(args, loaded)
    check_lengths(args, loaded, source, target)
    if target is None:
        (target,) = loaded.translator(search_of(args)).translate([source])
    page = content(args, loaded, source, target)
    template = (files("fairseq_memattn") / "templates/view/page.html").read_text("utf-8")
    # `</` would end the script, and `<!--` change how the page goes on.
    data = json.dumps(page, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    write_text(args.output, template.replace(DATA, data))
    print(f"wrote {args.output}: {len(source)} sentences")


def check(args: argparse.Namespace) -> None:
    if args.text is None:
        names = ("target", "sentencepiece_model", "subword_nmt")
        refuse_unused(args, names, "is for --text, which is not given")
    else:
        names = ("subset", "document", "reference")
        refuse_unused(args, names, f"is for the data, but --text {args.text} was given")
    check_given(args, ["document"], 0)
    check_search(args)
    if args.target or args.reference:
        reason = "is for the model's own translation, but another is given"
        refuse_unused(args, tuple(SEARCH), reason)
    if args.output.suffix != ".html":
        raise ValueError(f"--output must end with .html, but is {args.output}")
    given = (args.text, args.target, args.sentencepiece_model, args.subword_nmt)
    inputs = [*models.folders(args.data), *given]
    check_outputs({"--output": args.output}, inputs)


def read_lines(args: argparse.Namespace) -> list[list[str]]:
    sides = []
    for name, column in (("text", "src"), ("target", "ref")):
        path = getattr(args, name)
        if path is not None:
            sides.append(read_texts(f"--{name}", path, column))
            for number, line in enumerate(sides[-1], start=1):
                if not line.strip():
                    raise ValueError(
                        f"--{name} {path}, line {number}: there is no text; the file must "
                        "be one document, without empty lines"
                    )
    if sides and not sides[0]:
        raise ValueError(f"--text {args.text} is empty")
    if len(sides) > 1:
        same_lines("--target", args.target, sides[1], f"--text {args.text}", len(sides[0]))
    return sides


def encoded(
    loaded: models.Loaded, sides: list[list[str]], segment: Any
) -> "tuple[list[Tensor], list[Tensor] | None]":
    dictionaries = (loaded.task.source_dictionary, loaded.task.target_dictionary)
    found = []
    for name, lines, dictionary in zip(("source", "target"), sides, dictionaries, strict=False):
        encode = models.Encoder(dictionary, segment)
        found.append([encode(line) for line in lines])
        encode.report(name)
    return found[0], found[1] if len(found) > 1 else None


def of_subset(
    args: argparse.Namespace, loaded: models.Loaded
) -> "tuple[list[Tensor], list[Tensor] | None]":
    """The source of a document and, with --reference, its reference."""
    subset, number = args.subset or SUBSET, args.document or 0
    sides, documents = models.parallel_split(args.data, subset, loaded.task)
    if number >= len(documents):
        raise ValueError(
            f"--document must be from 0 to {len(documents) - 1} in {subset}, but is {number}"
        )
    source, reference = (
        [side[sentence].long() for sentence in documents.sentences_of(number)] for side in sides
    )
    return source, reference if args.reference else None


def check_lengths(
    args: argparse.Namespace,
    loaded: models.Loaded,
    source: "list[Tensor]",
    target: "list[Tensor] | None",
) -> None:
    limits = loaded.windows(0, 0)
    for name, sentences, most in (
        ("text", source, limits.max_source),
        ("target", target or [], limits.max_target),
    ):
        path = getattr(args, name)
        for number, sentence in enumerate(sentences, start=1):
            if len(sentence) > most:
                place = f"--{name} {path}, line" if path else f"{shown_document(args)}, sentence"
                raise ValueError(
                    f"{place} {number}: must have at most the {most} tokens that the model takes, "
                    f"but has {len(sentence)}, end of line included"
                )


def shown_document(args: argparse.Namespace) -> str:
    return f"{args.subset or SUBSET}, document {args.document or 0}"


def shown_translation(args: argparse.Namespace) -> str:
    """What the page says about the translation."""
    if args.reference:
        return "the reference"
    return f"that of {args.target.name}" if args.target else "the model's own"


def content(
    args: argparse.Namespace, loaded: models.Loaded, source: "list[Tensor]", target: "list[Tensor]"
) -> dict[str, Any]:
    from tqdm import tqdm

    from fairseq_memattn.tasks.inference.view import DocumentView

    windows = loaded.windows(loaded.source_context, loaded.target_context)
    view = DocumentView(loaded.models[0].eval(), windows, source, target)
    sentences = list(tqdm(view.sentences(), total=len(source), disable=None, leave=False))
    if any(view.dataset.cropped.values()):
        say(f"windows that lost context, too long: {view.dataset.cropped}")
    task = loaded.task
    return {
        "title": args.text.name if args.text else shown_document(args),
        "translation": shown_translation(args),
        "kind": view.kind,
        "layer": view.layer,
        "source": [words(task.source_dictionary, row) for row in source],
        "target": [words(task.target_dictionary, row) for row in target],
        "windows": sentences,
    }
