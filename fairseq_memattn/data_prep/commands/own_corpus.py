"""Your own text, with or without document ids, to fairseq's data in one command."""

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from filecmp import cmp
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from fairseq_memattn.data_prep.formats.boundaries import between_blanks
from fairseq_memattn.data_prep.formats.document_format import DOCID
from fairseq_memattn.data_prep.formats.one_file import READERS, find_columns, find_files
from fairseq_memattn.data_prep.formats.wit3 import refuse_mark_up
from fairseq_memattn.data_prep.pipeline import arguments
from fairseq_memattn.data_prep.pipeline.binarise import check_languages, check_name, find_splits
from fairseq_memattn.data_prep.pipeline.pretrained_subwords import check_vocabulary
from fairseq_memattn.data_prep.pipeline.stages import locks_output
from fairseq_memattn.data_prep.pipeline.text_to_binary import Pipeline
from fairseq_memattn.data_prep.text import aligned, subword
from fairseq_memattn.errors import MemAttnError, flag

DESCRIPTION = """\
Convert your own text to fairseq's data. The text is checked, optionally tokenised, segmented with a
SentencePiece model that is trained on the training text of all languages, and binarised with its
document ids.

  %(prog)s --text train=my/train valid=my/dev test=my/test --langs en es --output my/data
      reads my/train.en, my/train.es, ..., with one sentence a line, and, where they exist,
      my/train.docid, my/dev.docid and my/test.docid, with the document id of each line

  %(prog)s --text train=my/train valid=my/dev --langs en es --output my/data \\
              --sentencepiece-model old/spm.model --dictionary old/bin/dict.en.txt
      the vocabulary of a model that is to be finetuned on this text

  %(prog)s --text train=my/train valid=my/dev --langs en --output my/data
      one language: data for language modelling

  %(prog)s --format tsv --text train=my/train.tsv valid=my/dev.tsv --langs en es \\
              --columns en=2 es=3 docid=1 --output my/data
      a file for each split: tab-separated values (tsv), JSON lines (jsonl), or SGM and XML
      documents (sgm)

FOLDER/text/      your sentences; test.es is the reference for scores of plain text
FOLDER/pieces/    segmented with FOLDER/spm.model
FOLDER/bin/       fairseq's data, with document ids
"""


RULES = ("drop_empty", "unique_ids", "blank_lines")  # options that are rules
Rules = Mapping[str, Any]  # those that are chosen
BLANK = "blank lines dropped (with --blank-lines, they separate documents)"
ADVICE = "; --drop-empty leaves such lines out, --blank-lines takes those that separate documents"


def rows(
    sentences: Iterable[aligned.Sentence],
    texts: Sequence[Path],
    docids: Path | None,
    rules: Rules,
    counts: Counter[str],
) -> Iterator[tuple[str, ...]]:
    """The texts of a split and, with `docids`, the document id last.

    texts: the file of each language, for errors; docids: that of the ids, if there are ids
    Raises MemAttnError for a pair with an empty side and for a document that continues after its
    end, unless the rules allow them; in a single language lines may be empty.
    """
    if "blank_lines" in rules:
        sentences = between_blanks(sentences, texts[0])
    elif docids and "unique_ids" in rules:
        sentences = aligned.with_unique_ids(sentences, counts)
    elif docids:
        sentences = aligned.contiguous(sentences, docids)
    for sentence in sentences:
        if "drop_empty" in rules and not all(text.strip() for text in sentence.texts):
            separates = not docids and not any(text.strip() for text in sentence.texts)
            counts[BLANK if separates else "lines without text in some language dropped"] += 1
            continue
        if len(texts) > 1:
            for path, line in zip(texts, sentence.texts, strict=True):
                aligned.refuse_empty(path, sentence.line, line, ADVICE)
        texts_of = sentence.texts
        if "tag" in rules:
            texts_of = (f"{rules['tag']} {texts_of[0]}", *texts_of[1:])
        yield (*texts_of, sentence.document) if docids else texts_of


def write_texts(pipeline: Pipeline, text: dict[str, Path], rules: Mapping[str, Rules]) -> bool:
    """The user's lines to text/, by the rules of each split; returns whether they have ids."""
    found = find_splits(text, pipeline.languages)
    documents = check_boundaries(found.documents, rules["train"])
    with pipeline.stages.all_or_none():
        for split in text:
            texts = found.texts(split)
            docids: Path | None = found.docids(split)
            if not found.documents:  # the file that has the boundaries, if a rule says that it has
                docids = texts[0] if "blank_lines" in rules[split] else None
            files = [path for name, path in found.inputs().items() if name.startswith(f"{split}.")]
            sentences = plain_text(found.sentences(split), texts)
            read = partial(rows, sentences, texts, docids, rules[split])
            pipeline.write_text(split, files, read, documents, **rules[split])
    return documents


def plain_text(
    sentences: Iterable[aligned.Sentence], texts: Sequence[Path]
) -> Iterator[aligned.Sentence]:
    """The same sentences. Raises MemAttnError for the mark-up of a release."""
    for sentence in sentences:
        refuse_mark_up(texts[0], sentence.line, sentence.texts[0])
        yield sentence


def check_boundaries(ids: bool, rules: Rules) -> bool:
    """Whether there are documents. Raises MemAttnError for two kinds of boundaries."""
    if ids and "blank_lines" in rules:
        raise MemAttnError("--blank-lines is for text without document ids, but this has them")
    return ids or "blank_lines" in rules


def write_files(
    pipeline: Pipeline, text: dict[str, Path], args: argparse.Namespace, rules: Mapping[str, Rules]
) -> bool:
    """The user's files of --format to text/; returns whether they have document ids."""
    languages = pipeline.languages
    check_languages(languages)
    files = find_files(text, args.format, languages)
    columns = find_columns(args.format, args.columns, languages, [*text.values()])
    documents = check_boundaries(args.format == "sgm" or DOCID in columns, rules["train"])

    def read(split: str, counts: Counter[str]) -> Iterator[tuple[str, ...]]:
        sentences = READERS[args.format](text[split], languages, columns, counts)
        texts = len(languages) * [text[split]]
        return rows(sentences, texts, texts[0] if documents else None, rules[split], counts)

    with pipeline.stages.all_or_none():
        for split in text:
            options = {"format": args.format, "columns": columns, **rules[split]}
            pipeline.write_text(split, files[split], partial(read, split), documents, **options)
    return documents


def warn_of_training_text(pipeline: Pipeline, splits: Sequence[str]) -> None:
    """Print a warning for each split that has the text of train."""
    for split in splits:
        pairs = zip(pipeline.paths("text", "train"), pipeline.paths("text", split), strict=True)
        if not split.startswith("train") and all(cmp(*pair, shallow=False) for pair in pairs):
            print(
                f"warning: --text: {split} has the same text as train; scores of {split} will be "
                "those of text that the model was trained on",
                file=sys.stderr,
            )


def check_given(args: argparse.Namespace) -> None:
    """Raise MemAttnError for a vocabulary of another model that is not whole or not one."""
    names = ("sentencepiece_model", "dictionary")
    for name, other in (names, names[::-1]):
        found = getattr(args, name)
        if found and not getattr(args, other):
            raise MemAttnError(f"{flag(name)} needs {flag(other)}, that of the same model")
        if found and len(found) not in (1, len(args.langs)):
            raise MemAttnError(f"{flag(name)} must be one file, or one for each of --langs")
    if args.dictionary:
        check_vocabulary(args.sentencepiece_model, args.dictionary)


@locks_output
def run(args: argparse.Namespace) -> None:
    text = dict(args.text)
    if len(text) < len(args.text):
        raise MemAttnError("--text names a split twice")
    for split, path in text.items():
        check_name(split, path, text)
    if "train" not in text:
        raise MemAttnError("--text has no train, from which the segmentation is learnt")
    if args.columns and args.format == "lines":
        raise MemAttnError("--columns requires --format tsv or jsonl")
    tags = dict(args.tag)
    if foreign := [split for split in tags if split not in text]:
        raise MemAttnError(f"--tag names {foreign[0]}, which --text does not have")
    if args.shards > 1 and "train1" in text:
        raise MemAttnError("--shards is for a training set of one part; leave out train1")
    training = replace(subword.Training.of(args), symbols=tuple(sorted({*tags.values()})))
    check_given(args)
    pipeline = Pipeline(args.output, args.langs, workers=args.workers, force=args.force)
    chosen = {name: True for name in RULES if getattr(args, name)}
    tag = {split: {"tag": token} for split, token in tags.items()}
    rules = {split: {**chosen, **tag.get(split, {})} for split in text}
    if args.format == "lines":
        documents = write_texts(pipeline, text, rules)
    else:
        documents = write_files(pipeline, text, args, rules)
    splits = [*text]
    warn_of_training_text(pipeline, splits)
    kind = "text"
    if args.tokenise:
        pipeline.tokenise(splits)
        kind = "tokens"
    if args.sentencepiece_model:
        models = pipeline.copy_sentencepiece(args.sentencepiece_model)
        vocabulary: dict[str, Any] = {"dictionary": args.dictionary[0]}
        if len(args.dictionary) > 1:
            each = dict(zip(args.langs, args.dictionary, strict=True))
            vocabulary = {"dictionary": each, "joined_dictionary": False}
    else:
        parts = [pipeline.paths(kind, split) for split in splits if split.startswith("train")]
        learnt = [*chain(*parts), *args.more_text]
        model = pipeline.learn_sentencepiece(learnt, "spm", training)
        models, vocabulary = [model], {"model": model}
    for number, model in enumerate(models):
        sides = [args.langs[number]] if len(models) > 1 else []
        pipeline.apply_sentencepiece(kind, model, splits, sides)
    if documents:
        pipeline.copy_docids(splits)
    else:
        pipeline.drop_docids(splits)
    if args.shards > 1:
        pipeline.binarise_shards(args.shards, splits, documents, vocabulary)
    else:
        pipeline.binarise(splits=splits, **vocabulary)
    pipeline.forget_other_splits(splits)
    if "valid" not in splits:
        print(
            "--text has no valid: fairseq-train needs --disable-validation, or a validation set; "
            "add valid=... to --text"
        )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_options(
        parser,
        "--text",
        "--langs",
        *arguments.COMMON,
        "--vocab-size",
        *arguments.SENTENCEPIECE,
        "--seed",
    )
    shards = "parts of the training data, of which fairseq-train reads one an epoch: bin/0, bin/1"
    arguments.add_numbers(parser, {"--shards": (arguments.positive, 1, shards)})
    parser.add_argument(
        "--format",
        choices=("lines", *READERS),
        default="lines",
        help="lines: PREFIX.LANG and PREFIX.docid; tsv, jsonl: one file for each split; sgm: one "
        "XML file for each split with all languages, or SRC.sgm:REF.sgm, also train.tags.* of "
        "IWSLT (default: %(default)s)",
    )
    of_model = "SentencePiece model of a trained model, or those of its source and of its target, "
    of_dictionary = "dictionary of that model (dict.LANG.txt of its data), or those of its sides"
    changes = {
        "sentencepiece_model": {"nargs": "+", "help": f"{of_model}in place of one that is trained"},
        "dictionary": {"nargs": "+", "help": of_dictionary},
    }
    arguments.add_options(parser, "--sentencepiece-model", "--dictionary", **changes)
    parser.add_argument(
        "--tag",
        nargs="+",
        type=arguments.name_and("SPLIT=TOKEN", arguments.separator_token),
        default=[],
        metavar="SPLIT=TOKEN",
        help="a token before each source sentence of a split, such as train1=_bt where the source "
        "was back-translated; it is one piece of the model that is trained",
    )
    of_more = "further text that SentencePiece learns from, such as that of the corpus on which "
    of_more += "the model is finetuned; it is not binarised"
    parser.add_argument("--more-text", **arguments.file(of_more, nargs="+", default=[]))
    parser.add_argument(
        "--columns",
        nargs="+",
        type=arguments.name_and("LANG=COLUMN", str),
        metavar="LANG=COLUMN",
        help="for tsv the number of each language's field, from 1, or its name in a header; for "
        "jsonl its key; docid=COLUMN is the document id (default: keys and the header of a table "
        "are the names of the languages and docid; the fields of a table without a header are in "
        "the order of --langs)",
    )
    switches = {
        "--drop-empty": "leave out and count lines without text in some language, instead of "
        "refusing them",
        "--unique-ids": "number document ids that occur again (talk, talk.2), instead of refusing "
        "them",
        "--blank-lines": "blank lines, or blank rows of a table, separate documents, which get the "
        "ids 1, 2, ...; for text without document ids",
        "--tokenise": "normalise punctuation and tokenise with Moses' rules before segmenting",
    }
    arguments.add_switches(parser, switches)
