"""Conversion of documents from and to the formats of other toolkits; checks and splits."""

import argparse
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from fairseq_memattn.data_prep.formats import FORMATS, OURS
from fairseq_memattn.data_prep.formats.document_format import Format, Writer, read_only
from fairseq_memattn.data_prep.formats.releases import SEGMENTS, Choice, condition
from fairseq_memattn.data_prep.pipeline import arguments
from fairseq_memattn.data_prep.pipeline.stages import refuse_overwriting
from fairseq_memattn.data_prep.text.aligned import (
    Sentence,
    contiguous,
    read_documents,
    without_empty,
)
from fairseq_memattn.data_prep.text.lines import progress
from fairseq_memattn.errors import MemAttnError, flag
from fairseq_memattn.files import write_all_or_nothing

SPLITS = ("train", "valid", "test")
OF_RELEASES = ("columns", "where", "segments", "test_suites")  # the options of some formats
DESCRIPTION = """\
The format of this project is PREFIX.LANG, one file a language with one sentence a line, and
PREFIX.docid with one document id a line. The lines of a document are contiguous.

  %(prog)s from han --input ted/train --langs es en --output corpus/train
      reads ted/train.es, ted/train.en and ted/train.doc
      writes corpus/train.es, corpus/train.en and corpus/train.docid
  %(prog)s to contextual-mt --input corpus/train --langs es en --output cmt/train.es-en
      writes cmt/train.es-en.es, cmt/train.es-en.en and cmt/train.es-en.docids
  %(prog)s check corpus/train --langs es en
      checks corpus/train.{es,en,docid} and prints the numbers of documents and sentences
  %(prog)s split --input corpus/all --langs es en --output corpus --valid-docs 50 --test-docs 50
      writes corpus/{train,valid,test}.{es,en,docid}, each document to one split
"""


class NoSentences(MemAttnError):
    """There is nothing to write."""


@dataclass
class Counts:
    """Numbers of documents and sentences, and the longest document, of what `of` has passed on."""

    documents: int = 0
    sentences: int = 0
    longest: int = 0
    longest_id: str = ""

    def of(self, sentences: Iterable[Sentence]) -> Iterator[Sentence]:
        """The same sentences, counted."""
        current, length = None, 0
        for sentence in sentences:
            if sentence.document != current:
                current, length = sentence.document, 0
                self.documents += 1
            self.sentences += 1
            length += 1
            if length > self.longest:
                self.longest, self.longest_id = length, sentence.document
            yield sentence

    def __str__(self) -> str:
        return (
            f"{self.documents} documents, {self.sentences} sentences, "
            f"the longest document {self.longest} ({self.longest_id})"
        )


def with_text(sentences: Iterable[Sentence], dropped: list[int]) -> Iterator[Sentence]:
    """The sentences with text in every language.

    dropped: gets the number of the others and the line of the first one
    """
    for sentence in sentences:
        if all(text.strip() for text in sentence.texts):
            yield sentence
        else:
            dropped[:] = dropped[0] + 1, dropped[1] or sentence.line


def convert_from(form: Format, args: argparse.Namespace, counts: Counter[str]) -> list[str]:
    """Convert --input in another format to --output in ours.

    counts: what the reader leaves out

    Returns lines to print: the counts, and what was dropped or is unknown. Raises MemAttnError for
    malformed input, and then writes nothing.
    """
    inputs = form.paths(args.input, args.langs, args.boundaries)
    found = form.read(inputs)
    if not form.release:  # whose readers have a bar
        found = progress(found, args.input, inputs[0])
    sentences = contiguous(found, inputs[-1])
    dropped = [0, 0]
    if args.drop_empty:
        sentences = with_text(sentences, dropped)
    else:
        one = form.one_file or form.release
        texts = inputs[:1] * len(args.langs) if one else inputs[: len(args.langs)]
        sentences = without_empty(sentences, texts)
    outputs = OURS.paths(args.output, args.langs)
    try:
        report = write_sentences(sentences, inputs, OURS.write, outputs, args.force)
    except NoSentences as error:
        left_out = "".join(f"; {number:,} {what}" for what, number in counts.items())
        raise MemAttnError(f"{error}{left_out}") from None
    if dropped[0]:
        report.append(
            f"note: {dropped[0]} lines without text in some language dropped, "
            f"the first was line {dropped[1]}"
        )
    report += [f"note: {number:,} {what}" for what, number in counts.items()]
    return report + [f"note: {form.reading}"] * bool(form.reading)


def convert_to(form: Format, args: argparse.Namespace) -> list[str]:
    """Convert --input in our format to --output in another.

    Returns lines to print: the counts, and what the format cannot store. Raises MemAttnError for
    malformed input and for text that the format cannot store, and then writes nothing.
    """
    inputs = OURS.paths(args.input, args.langs)
    limit = args.max_tokens or form.max_tokens
    write = form.write if limit is None else partial(form.write, max_tokens=limit)
    found = progress(read_documents(inputs), args.input, inputs[0])
    sentences = fitting(found, inputs[:-1], form, limit)
    outputs = replace(form, release=False).paths(args.output, args.langs, args.boundaries)
    return write_sentences(sentences, inputs, write, outputs, args.force)


def fitting(
    sentences: Iterable[Sentence], texts: Sequence[Path], form: Format, limit: int | None
) -> Iterator[Sentence]:
    """The same sentences; raises MemAttnError for one that the format cannot store."""
    for sentence in sentences:
        for path, text in zip(texts, sentence.texts, strict=True):
            tokens = text.split()
            marks = form.reserved.intersection([*tokens, *text])
            if marks:
                raise MemAttnError(
                    f"{path}, line {sentence.line}: the text contains {min(marks)!r}, "
                    "which marks a boundary in this format"
                )
            length = len(tokens) + form.marks
            if limit is not None and length > limit:
                raise MemAttnError(
                    f"{path}, line {sentence.line}: --max-tokens must be at least {length} for "
                    f"this sentence, but is {limit}"
                )
        yield sentence


def write_sentences(
    sentences: Iterable[Sentence],
    inputs: Sequence[Path],
    write: Writer,
    outputs: Sequence[Path],
    force: bool,
) -> list[str]:
    """Write everything or nothing; returns the counts and the note of the writer."""
    refuse_overwriting(inputs, outputs, force)
    counts = Counts()
    with write_all_or_nothing(outputs) as files:
        counted = counts.of(sentences)
        note = write(counted, files)
        if counts.sentences == 0:
            raise NoSentences(f"{inputs[0]}: no sentences")
    return [str(counts)] + [f"note: {note}"] * bool(note)


def check(prefix: str, languages: Sequence[str]) -> Counts:
    """The counts of PREFIX. Raises MemAttnError for wrong input."""
    inputs = OURS.paths(prefix, languages)
    counts = Counts()
    for _ in counts.of(progress(read_documents(inputs), prefix, inputs[0])):
        pass
    if counts.sentences == 0:
        raise MemAttnError(f"{inputs[0]}: no lines")
    return counts


def split(args: argparse.Namespace) -> dict[str, Counts]:
    """Split PREFIX by whole documents into FOLDER/{train,valid,test}.

    The documents with the smallest SHA-256 of seed and id form the validation set, the next ones
    the test set, and the rest the training set. The same ids and options therefore give the same
    split on every machine, whatever the order of the documents, which each split keeps. Raises
    MemAttnError where no document remains for training.
    """
    valid_docs, test_docs, seed = args.valid_docs, args.test_docs, args.seed
    inputs = OURS.paths(args.input, args.langs)
    outputs = {name: OURS.paths(str(args.output / name), args.langs) for name in SPLITS}
    everything = [path for paths in outputs.values() for path in paths]
    refuse_overwriting(inputs, everything, args.force)
    documents = list(dict.fromkeys(sentence.document for sentence in read_documents(inputs)))
    if valid_docs + test_docs >= len(documents):
        raise MemAttnError(
            f"--valid-docs and --test-docs must leave at least one of the {len(documents)} "
            f"documents in {inputs[-1]} for training, but are {valid_docs} and {test_docs}"
        )
    documents.sort(key=lambda docid: hashlib.sha256(f"{seed} {docid}".encode()).digest())
    place = dict.fromkeys(documents[valid_docs : valid_docs + test_docs], "test")
    place |= dict.fromkeys(documents[:valid_docs], "valid")
    counts = {}
    with write_all_or_nothing(everything) as files:
        for number, name in enumerate(SPLITS):
            own = files[number * len(inputs) : (number + 1) * len(inputs)]
            chosen = (s for s in read_documents(inputs) if place.get(s.document, "train") == name)
            counts[name] = Counts()
            shown = progress(chosen, name)
            OURS.write(counts[name].of(shown), own)
    return counts


def formats_help() -> str:
    rows = (f"  {name:15} {form.example}" for name, form in FORMATS.items())
    return "formats (| is the end of a line):\n" + "\n".join(rows)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    formatter = argparse.RawDescriptionHelpFormatter
    parser.epilog = formats_help()
    commands = parser.add_subparsers(dest="command", required=True)
    reading = commands.add_parser(
        "from", help="convert from another format", epilog=formats_help(), formatter_class=formatter
    )
    writing = commands.add_parser(
        "to", help="convert to another format", epilog=formats_help(), formatter_class=formatter
    )
    checking = commands.add_parser("check", help="check files and count documents and sentences")
    splitting = commands.add_parser("split", help="split a corpus by documents")

    langs = {"help": "suffixes of one text or of line-aligned texts, the source first"}
    of_boundaries = "file of ids or first lines in the other format, if its name is not as below"
    for command in (reading, writing):
        formats = tuple(
            x for x, form in FORMATS.items() if command is reading or form.write is not read_only
        )
        command.add_argument("format", choices=formats, metavar="FORMAT", help="see below")
        command.add_argument("--boundaries", **arguments.file(of_boundaries))
        prefix = {"type": str, "metavar": "PREFIX", "help": "prefix of the output"}
        arguments.add_options(command, "--output", output=prefix)
    checking.add_argument("input", metavar="PREFIX", help="PREFIX.LANG and PREFIX.docid")
    for command in (reading, writing, splitting):
        command.add_argument("--input", required=True, metavar="PREFIX", help="prefix of the input")
        arguments.add_options(command, "--force")
    for command in (reading, writing, checking, splitting):
        arguments.add_options(command, "--langs", langs=langs)
    reading.add_argument(
        "--columns",
        nargs="+",
        type=arguments.name_and("NAME=COLUMN", str),
        metavar="NAME=COLUMN",
        help="of tsv: the column of a language or of docid, by its name in the header or its "
        "number, where it has another name; of jsonl: its key, or keys between dots",
    )
    reading.add_argument(
        "--where",
        nargs="+",
        type=condition,
        metavar="KEY=VALUE",
        help="of jsonl and releases: read the rows for which all of these hold, with =, !=, >= "
        "or <=; for dochplt and paradocs, pairs of sentences, such as 'bicleaner-score>=0.5'",
    )
    reading.add_argument(
        "--segments",
        choices=SEGMENTS,
        help="of jsonl, wmt24pp and wmt: what becomes a line (default for wmt: paragraphs)",
    )
    switches = {
        "--test-suites": "of wmt and wmt-xml: also read the documents of test suites",
        "--drop-empty": "leave out and count lines without text in some language; by default they "
        "are errors",
    }
    arguments.add_switches(reading, switches)
    limits = ", ".join(f"{x}: {form.max_tokens}" for x, form in FORMATS.items() if form.max_tokens)
    of_limit = f"the most tokens on a line (default for {limits})"
    writing.add_argument("--max-tokens", **arguments.number(of_limit))
    arguments.add_options(splitting, "--output", "--seed")
    splitting.add_argument("--valid-docs", required=True, type=arguments.positive, metavar="N")
    splitting.add_argument("--test-docs", required=True, type=arguments.positive, metavar="N")


def convert(form: Format, args: argparse.Namespace) -> list[str]:
    """Convert from a format or to it. Raises MemAttnError for options that it does not have."""
    if args.boundaries and not form.boundaries:
        raise MemAttnError(f"--boundaries {args.boundaries}: {args.format} has no such file")
    if args.command == "to":
        if args.max_tokens and not form.max_tokens:
            raise MemAttnError(f"--max-tokens {args.max_tokens}: {args.format} has no such limit")
        return convert_to(form.of(args.langs), args)
    counts: Counter[str] = Counter()
    given = {name: getattr(args, name) for name in OF_RELEASES if getattr(args, name)}
    for name in given.keys() - form.takes:
        allowed = " or ".join(one for one, other in FORMATS.items() if name in other.takes)
        raise MemAttnError(f"{flag(name)} requires the format {allowed}")
    if args.format == "tsv":
        form = replace(form, read=partial(form.read, columns=args.columns or ()))
    elif form.release:
        given |= {"columns": dict(args.columns or ())}
        chosen = Choice(args.langs, counts, **given)
        form = replace(form, read=partial(form.read, chosen=chosen))
    return convert_from(form.of(args.langs), args, counts)


def run(args: argparse.Namespace) -> None:
    if len(set(args.langs)) < len(args.langs):
        raise MemAttnError(f"--langs must name each language once, but is {' '.join(args.langs)}")
    if args.command == "check":
        lines = [str(check(args.input, args.langs))]
    elif args.command == "split":
        lines = [f"{name:5} {count}" for name, count in split(args).items()]
    else:
        lines = convert(FORMATS[args.format], args)
    print("\n".join(lines))
