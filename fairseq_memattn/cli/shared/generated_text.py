"""`memattn contrast --generate`: translates the sources of generative sets with their context."""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairseq_memattn.cli.shared import models, segmentation
from fairseq_memattn.cli.shared.inputs import check_given, refuse_unused, require_file
from fairseq_memattn.cli.shared.options import Options
from fairseq_memattn.cli.shared.outputs import say
from fairseq_memattn.errors import LARGEST, MemAttnError
from fairseq_memattn.evaluation.directions import check_direction
from fairseq_memattn.evaluation.generative import Example
from fairseq_memattn.evaluation.generative_sets import ctxpro, direction_of
from fairseq_memattn.evaluation.text_columns import file_of

if TYPE_CHECKING:
    from torch import Tensor

# The options of fairseq-generate, with its defaults, and their smallest values.
SEARCH = {"beam": 5, "lenpen": 1.0, "max_len_a": 0.0, "max_len_b": 200}
LEAST = {"beam": 1, "lenpen": -LARGEST, "max_len_a": 0, "max_len_b": 0}
SENTENCES = 10  # of a source from documents, the default of `ctxpro extract`
# The flags that are for --generate alone, and those that are not for an exported folder.
OWN = ("sources", "documents", "source_lang", "document_sentences", "translations_out", *SEARCH)
OF_CHECKPOINTS = (
    *("source_context", "target_context", "separator"),
    *("sentencepiece_model", "subword_nmt"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = Options(parser.add_argument_group("generative sets, with a model"))
    add.switch(
        "--generate",
        "translate the sources of generative sets, sentence by sentence with the model's own "
        "translations as target context, and judge the text. The model is data and --path, or a "
        "folder that `memattn export` has written in place of data",
    )
    add.file(
        "--sources",
        "the sources of each JSON file of --sets, in their order: one example a line, whose "
        "sentences are joined by <eos>, as ctxpro publishes them",
        nargs="+",
    )
    add.file(
        "--documents",
        "take the sources from FOLDER/ID.LANG, where ID is the `document id` in the JSON and "
        "LANG is --source-lang",
        metavar="FOLDER",
    )
    add("--source-lang", "for --documents: the language of the sources", metavar="LANG")
    add.number(
        "--document-sentences",
        "for --documents: the largest number of sentences of a source, of which the last one "
        f"is judged (default: {SENTENCES})",
    )
    add.file(
        "--translations-out",
        "also write the translations as text, one example a line, or, with the suffix .jsonl "
        "or .tsv, as a table with the sources",
    )
    add_search(add)


def add_search(add: Options) -> None:
    add("--beam", f"beam size (default: {SEARCH['beam']})", type=int)
    add("--lenpen", f"length penalty (default: {SEARCH['lenpen']})", type=float)
    add(
        "--max-len-a",
        "a translation has at most a times the tokens of its sentence and b tokens "
        f"(default: {SEARCH['max_len_a']})",
        type=float,
    )
    add("--max-len-b", f"b (default: {SEARCH['max_len_b']})", type=int)


def check_search(args: argparse.Namespace) -> None:
    for name in SEARCH:
        check_given(args, [name], LEAST[name], LARGEST)


def search_of(args: argparse.Namespace) -> dict[str, float]:
    """The options of the search, with fairseq's defaults."""
    given = {name: getattr(args, name) for name in SEARCH}
    return {name: SEARCH[name] if value is None else value for name, value in given.items()}


def check(args: argparse.Namespace) -> None:
    if args.data is None:
        missing = "the data and --path of a model, or a folder that `memattn export` has written"
        raise ValueError(f"--generate needs {missing}")
    refuse_unused(args, ["scores"], "is for contrastive sets; --generate has no scores")
    check_search(args)
    _check_sources(args)
    if args.path is None:
        refuse_unused(args, OF_CHECKPOINTS, "is for --path; an exported folder has its own")
        if not Path(args.data).is_dir():
            raise ValueError(f"{args.data}: there is no such folder")
        return
    models.check_paths(args.data, args.path)


def _check_sources(args: argparse.Namespace) -> None:
    if args.documents is None:
        names = ("source_lang", "document_sentences")
        refuse_unused(args, names, "is for --documents, which is missing")
    for path in args.sources or ():
        require_file("--sources", path, file_of(path))
    jsons = [path for path in args.sets if not path.is_dir()]
    if args.sources is not None and args.documents is not None:
        raise ValueError("--sources and --documents cannot be combined")
    if not jsons and (args.sources or args.documents):
        raise ValueError(
            "--sources and --documents are for JSON files of ctxpro, but --sets has none"
        )
    if args.documents is not None:
        if not args.documents.is_dir():
            raise ValueError(f"--documents {args.documents}: there is no such folder")
        if args.source_lang is None:
            raise ValueError("--source-lang is missing; --documents needs it, such as en")
        check_given(args, ["document_sentences"], 1, LARGEST)
    elif jsons and args.sources is None:
        raise ValueError(
            f"--sets {jsons[0]}: a JSON file of ctxpro has no context; --sources or --documents is "
            "missing"
        )
    elif len(args.sources or ()) != len(jsons):
        raise ValueError(
            f"--sources has {len(args.sources)} files, but --sets has {len(jsons)} JSON files"
        )


def inputs(args: argparse.Namespace) -> list[Path | None]:
    checkpoints = models.checkpoints(args.path) if args.path else []
    return [*checkpoints, *(args.sources or ()), args.sentencepiece_model, args.subword_nmt]


def with_sources(
    args: argparse.Namespace, sets: Sequence[tuple[Path, list[Example]]]
) -> list[Example]:
    """The examples of all sets, each with its source."""
    files = iter(args.sources or ())
    examples: list[Example] = []
    for path, read in sets:
        sources: list[ctxpro.Source]
        if path.is_dir():
            sources = [example.source for example in read]
        elif args.documents is None:
            sources = ctxpro.sources_of_file(path, next(files))
        else:
            most = args.document_sentences or SENTENCES
            sources = ctxpro.sources_of_documents(path, args.documents, args.source_lang, most)
        pairs = zip(read, sources, strict=True)
        examples += [replace(example, source=source) for example, source in pairs]
    return examples


def translations(args: argparse.Namespace, examples: Sequence[Example]) -> list[str]:
    """One line for each example, which has the translations of all sentences of its source."""
    search = search_of(args)
    work = _with_folder if args.path is None else _with_checkpoints
    found = work(args, examples, search)
    empty = [number for number, sentences in enumerate(found, 1) if not sentences[-1].strip()]
    if empty:
        say(
            f"warning: the translation of {len(empty)} of {len(found)} tested sentences is empty, "
            f"first example {empty[0]}; ctxpro's rule then judges the sentence before"
        )
    pairs = zip(examples, found, strict=True)
    return [example.joined(sentences) for example, sentences in pairs]


def _with_folder(
    args: argparse.Namespace, examples: Sequence[Example], search: dict[str, Any]
) -> list[list[str]]:
    translator = models.load_translator(Path(args.data), "cpu" if args.cpu else None)
    from fairseq_memattn.transformers.document_translator import SentenceError

    try:
        return translator.translate(
            [example.source for example in examples], progress=True, **search
        )
    except SentenceError as error:
        where = _where(examples, error.document, error.sentence)
        raise MemAttnError(f"{where}: {error.reason}") from None


def _with_checkpoints(
    args: argparse.Namespace, examples: Sequence[Example], search: dict[str, Any]
) -> list[list[str]]:
    segment = segmentation.segmenter(args)
    loaded = models.load(args)
    for path in args.sets:
        check_direction(path, direction_of(path, args.lang), loaded.languages)
    from fairseq.data.data_utils import post_process

    documents = _encoded(examples, loaded, models.Encoder(loaded.task.source_dictionary, segment))
    dictionary = loaded.task.target_dictionary
    translator = loaded.translator(search)
    found = translator.translate(documents)
    if translator.cropped:
        count = sum(map(len, documents))
        say(f"{translator.cropped} of {count} sentences lost source context: too long")
    pieces = segmentation.pieces_of(args)
    return [
        [post_process(dictionary.string(tokens), pieces) for tokens in sentences]
        for sentences in found
    ]


def _encoded(
    examples: Sequence[Example], loaded: models.Loaded, encode: models.Encoder
) -> "list[list[Tensor]]":
    """The tokens of each source sentence."""
    most = loaded.windows(loaded.source_context, loaded.target_context).max_source
    dictionary, symbol = loaded.task.source_dictionary, loaded.separator
    separator = dictionary.index(symbol) if symbol in dictionary else None
    documents = [[encode(sentence) for sentence in example.source] for example in examples]
    for number, document in enumerate(documents):
        for index, tokens in enumerate(document):
            if len(tokens) > most:
                raise MemAttnError(
                    f"{_where(examples, number, index)}: must have at most {most} tokens, which "
                    f"the model reads, but has {len(tokens)}"
                )
            if separator is not None and bool(tokens.eq(separator).any()):
                raise MemAttnError(
                    f"{_where(examples, number, index)}: contains the separator {symbol!r} of "
                    "sentences"
                )
    encode.report("source")
    return documents


def _where(examples: Sequence[Example], number: int, sentence: int) -> str:
    """An example by its set and its number in it, and a sentence of its source, from 1."""
    name = examples[number].set
    place = sum(example.set == name for example in examples[: number + 1])
    return f"{name}, example {place}, sentence {sentence + 1} of the source"
