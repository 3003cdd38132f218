"""What the question answering corpora share: from JSON to data for --task question_answering."""

import argparse
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from tqdm import tqdm

from fairseq_memattn.data_prep.pipeline import arguments
from fairseq_memattn.data_prep.pipeline.binarise import check_name, forget_other_parts
from fairseq_memattn.data_prep.pipeline.binary_data import check_dictionary
from fairseq_memattn.data_prep.pipeline.download import Archive, obtain_all
from fairseq_memattn.data_prep.pipeline.pretrained_subwords import (
    Subwords,
    segment,
    sentencepiece_subwords,
)
from fairseq_memattn.data_prep.pipeline.text_to_binary import Pipeline, check_published
from fairseq_memattn.data_prep.text import subword
from fairseq_memattn.data_prep.text.lines import write_row
from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.files import write_all_or_nothing
from fairseq_memattn.qa.question_sets import READERS, Question, record_line

PARTS = ("question", "context", "answer")
PIECE_OF_TEXT = 100  # words a line; SentencePiece ignores lines of more than 4,192 bytes
LAYOUT = """\
FOLDER/text/      questions, contexts and answers, one a line
FOLDER/pieces/    segmented with SentencePiece, by default with FOLDER/spm.model
FOLDER/bin/       data for --task question_answering: question/, context/, answer/, and
                  records/SPLIT.jsonl with the ids and all accepted answers
"""


@dataclass(frozen=True)
class Corpus:
    """A question answering corpus.

    rules: its name in fairseq_memattn.qa.question_sets
    archives: the official file of each split
    sizes: the published number of questions of each split
    context: returns the context of a question as text
    """

    rules: str
    archives: Mapping[str, Archive]
    sizes: Mapping[str, int]
    context: Callable[[Any], str]


def one_line(text: str) -> str:
    """Text in which a single space replaces all white space, including ends of lines."""
    return " ".join(text.split())


class Asked(NamedTuple):
    """What is written of a question.

    texts: a line for each file of text
    record: a line of JSON
    missing: the part without text, of question, answer and context the first, or ""
    counts: what else is counted
    """

    texts: Sequence[str]
    record: str
    missing: str
    counts: Mapping[str, int] = {}


def write_questions(
    pipeline: Pipeline,
    corpus: Corpus,
    split: str,
    source: Path,
    ask: Callable[[Any], Asked],
    **options: object,
) -> Mapping[str, int]:
    """A split's JSON to text/ and bin/records/; returns the counts.

    Training questions that lack a part are left out and counted. Other splits keep them, because
    the official evaluations count them.
    Raises MemAttnError if some questions have an answer and others do not, and for training
    questions without an answer.
    """
    outputs = [pipeline.path("bin/records", split, "jsonl"), *pipeline.paths("text", split)]

    def work() -> Counter[str]:
        counts = Counter({"questions": 0})
        found = READERS[corpus.rules](source)
        with write_all_or_nothing(outputs) as [records, *files]:
            for question in tqdm(found, desc=f"text/{split}", unit=" questions", disable=None):
                try:
                    asked = ask(question)
                except MemAttnError as error:
                    raise MemAttnError(f"{source}: {error}") from None
                if split == "train" and not question.answers:
                    raise MemAttnError(
                        f"{source}: {question.id!r} has no answer, but train needs one"
                    )
                if asked.missing and split == "train":
                    counts[f"without {asked.missing}, left out"] += 1
                    continue
                counts["questions"] += 1
                counts.update([f"without {asked.missing}, kept"] if asked.missing else [])
                counts.update(asked.counts)
                count_public(counts, question, source)
                records.write(asked.record)
                write_row(files, asked.texts)
            if not counts["questions"]:
                raise MemAttnError(f"{source}: no questions for {split}")
        return counts

    return pipeline.stages.run(f"text-{split}", [source], outputs, work, **options)


def with_context(corpus: Corpus, question: Question) -> Asked:
    """Question, context and the first accepted answer, which is empty where none is public."""
    answer = one_line(question.answers[0]) if question.answers else ""
    texts = [one_line(question.question), one_line(corpus.context(question)), answer]
    parts = {"a question": texts[0], "an answer": answer or not question.answers}
    missing = [name for name, text in {**parts, "a context": texts[1]}.items() if not text]
    return Asked(texts, record_line(corpus.rules, question), (missing or [""])[0])


def count_public(counts: Counter[str], question: Question, source: Path) -> None:
    """Count a question without an answer. Raises MemAttnError if only some have none."""
    counts.update([] if question.answers else ["without a public answer"])
    if counts["without a public answer"] not in (0, counts["questions"]):
        raise MemAttnError(
            f"{source}: the question {question.id!r} has "
            f"{'an answer' if question.answers else 'no answer'}, unlike the questions before it"
        )


def write_sample(pipeline: Pipeline, most: int, seed: int) -> Path:
    """Write the text for SentencePiece: the distinct texts of all parts of train.

    most: the most lines, of at most PIECE_OF_TEXT words each; drawn at random from more
    """
    sources = pipeline.paths("text", "train")
    target = pipeline.path("text", "train", "sample")

    def work() -> dict[str, int]:
        lines = list(dict.fromkeys(_pieces_of(sources)))
        drawn = lines if len(lines) <= most else Random(seed).sample(lines, most)
        with write_all_or_nothing([target]) as [file]:
            file.writelines(f"{line}\n" for line in drawn)
        return {"lines": len(drawn), "distinct lines in the training text": len(lines)}

    pipeline.stages.run("sample", sources, [target], work, most=most, seed=seed)
    return target


def _pieces_of(sources: Sequence[Path]) -> Iterator[str]:
    for source in sources:
        with open(source, encoding="utf-8", newline="\n") as file:
            for line in tqdm(file, desc=f"sample of {source.name}", unit=" lines", disable=None):
                words = line.split()
                for first in range(0, len(words), PIECE_OF_TEXT):
                    yield " ".join(words[first : first + PIECE_OF_TEXT])


def train_model(pipeline: Pipeline, args: argparse.Namespace) -> Path:
    sample = write_sample(pipeline, args.subword_lines, args.seed)
    return pipeline.learn_sentencepiece([sample], "spm", subword.Training.of(args))


def find_pieces(pipeline: Pipeline, args: argparse.Namespace) -> Subwords:
    """The segmentation with the given model or, by default, with one that is trained."""
    model = args.sentencepiece_model or train_model(pipeline, args)
    dictionary = args.dictionary
    if not dictionary:  # fairseq's dictionaries contain <s>, <pad>, </s> and <unk> already
        pieces = subword.all_pieces(model)
        dictionary = pipeline.write_dictionary(
            "dictionary", "pieces.txt", pieces, [model], "pieces"
        )
    return sentencepiece_subwords(model, dictionary)


def find_sources(args: argparse.Namespace, corpus: Corpus) -> dict[str, Path]:
    """The JSON of each split: the user's files, or the official ones, downloaded and checked."""
    if not args.files:
        archives = list(corpus.archives.values())
        found = obtain_all(archives, args.archive, args.output / "archives", args.unchecked)
        return dict(zip(corpus.archives, found, strict=True))
    if args.archive:
        raise MemAttnError(
            "--archive and --files exclude each other; --archive is for official files"
        )
    sources = dict(args.files)
    if len(sources) < len(args.files):
        raise MemAttnError("--files names a split twice")
    for split, path in sources.items():
        check_name(split, path, sources)
        if not path.is_file():
            raise MemAttnError(f"--files {split}={path}: no such file")
    return sources


def check_options(args: argparse.Namespace, sources: Mapping[str, Path]) -> None:
    """Raise MemAttnError for options that do not fit together, and for files that are wrong."""
    if args.dictionary and not args.sentencepiece_model:
        raise MemAttnError(
            "--dictionary requires --sentencepiece-model, the model that it belongs to"
        )
    if "train" not in sources and not args.sentencepiece_model:
        raise MemAttnError(
            "--files has no train, from which pieces are learnt; add --sentencepiece-model"
        )
    if args.sentencepiece_model:
        subword.load(args.sentencepiece_model, "--sentencepiece-model")
    else:
        subword.Training.of(args)
    if args.dictionary:
        check_dictionary(args.dictionary)


def write_texts(
    pipeline: Pipeline,
    args: argparse.Namespace,
    corpus: Corpus,
    sources: Mapping[str, Path],
    ask: Callable[[Any], Asked],
    **options: object,
) -> list[str]:
    """All splits as `write_questions`, all or none; returns those with public answers."""
    answered = []
    with pipeline.stages.all_or_none():
        for split, source in sources.items():
            counts = write_questions(pipeline, corpus, split, source, ask, **options)
            if not (args.files or args.unchecked):
                name = corpus.archives[split].name
                left_out = [n for what, n in counts.items() if what.endswith("left out")]
                found = counts["questions"] + sum(left_out)
                check_published(split, found, "questions", name, [corpus.sizes[split]])
            if not counts.get("without a public answer"):
                answered.append(split)
    return answered


def prepare(args: argparse.Namespace, corpus: Corpus, **options: object) -> None:
    """From JSON to bin/. options: the options that the text depends on."""
    pipeline = Pipeline(args.output, PARTS, workers=args.workers, force=args.force)
    sources = find_sources(args, corpus)
    check_options(args, sources)
    ask = partial(with_context, corpus)
    answered = write_texts(pipeline, args, corpus, sources, ask, **options)
    segment_and_binarise(pipeline, list(sources), answered, find_pieces(pipeline, args))
    pipeline.forget_other_splits(list(sources))


def segment_and_binarise(
    pipeline: Pipeline, asked: Sequence[str], answered: Sequence[str], subwords: Subwords
) -> None:
    """text/ to pieces/ and bin/. asked: all splits; answered: those with public answers."""
    for part, splits in (("question", asked), ("context", asked), ("answer", answered)):
        for split in splits:
            segment(pipeline, split, part, subwords)
        if splits:
            pipeline.binarise(splits=splits, dictionary=subwords.dictionary, part=part)
    if not answered:
        forget_other_parts(pipeline.folder / "bin", ["question", "context"])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_options(
        parser,
        *("--archives", "--unchecked", *arguments.COMMON, "--sentencepiece-model", "--dictionary"),
        *("--vocab-size", "--normalization", "--seed"),
        vocab_size={"default": 32000},
    )
    parser.add_argument(
        "--files",
        nargs="+",
        type=arguments.name_and("SPLIT=FILE"),
        metavar="SPLIT=FILE",
        help="files of the same format instead of the official ones, for train, valid, test, "
        "valid1, ...",
    )
    of_lines = f"the most lines of {PIECE_OF_TEXT} words that SentencePiece learns from, drawn at "
    arguments.add_numbers(
        parser, {"--subword-lines": (arguments.positive, 1_000_000, of_lines + "random")}
    )
