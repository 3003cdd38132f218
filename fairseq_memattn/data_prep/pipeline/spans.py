"""Question answering corpora for --task span_answering: pieces and their places in the text."""

import argparse
import json
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tqdm import tqdm

from fairseq_memattn.data_prep.pipeline import pretrained_subwords
from fairseq_memattn.data_prep.pipeline import questions as qa_pipeline
from fairseq_memattn.data_prep.pipeline.arguments import add_switches
from fairseq_memattn.data_prep.pipeline.binary_data import read_words
from fairseq_memattn.data_prep.pipeline.text_to_binary import Pipeline
from fairseq_memattn.data_prep.text.lines import LineFunction, map_lines, read_lines
from fairseq_memattn.data_prep.text.passages import Passage
from fairseq_memattn.data_prep.text.subword import load
from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.files import write_all_or_nothing
from fairseq_memattn.pieces import with_spaces
from fairseq_memattn.qa.question_sets import Question
from fairseq_memattn.qa.span_records import ABSENT, NOT_PUBLIC, NUMBERS, record_of

PARTS = ("question", "context")
LAYOUT = """\
Data for --task span_answering. FOLDER/bin has question/ and context/, fairseq's data; places/, the
characters of each piece of the contexts; answers/, the pieces of each answer; tags/, the pieces in
supporting facts; and records/SPLIT.jsonl, the original texts.
"""


class Pieces(NamedTuple):
    """The pieces of a text, and the half-open range of characters that each piece covers.

    A range excludes white space around the piece. It is empty for a piece that covers no
    character, which normalisation may create.
    """

    pieces: list[str]
    places: list[tuple[int, int]]


Cut = Callable[[str], Pieces]


def sentencepiece_cut(model: Path) -> Cut:
    processor = load(model, "--sentencepiece-model")

    def cut(text: str) -> Pieces:
        found = processor.encode(with_spaces(text), return_type="offset_mapping")
        return _pieces(text, found["pieces"], found["offsets"])

    return cut


def bert_cut(vocabulary: Path, lower_case: bool) -> Cut:
    tokenizer = pretrained_subwords.bert_tokenizer(vocabulary, lower_case)

    def cut(text: str) -> Pieces:
        found = tokenizer.encode(text, add_special_tokens=False)
        return _pieces(text, pretrained_subwords.bert_pieces(found), found.offsets)

    return cut


def _pieces(text: str, pieces: list[str], offsets: Any) -> Pieces:
    places = []
    for begin, end in offsets:
        begin = end - len(text[begin:end].lstrip())
        places.append((begin, begin + len(text[begin:end].rstrip())))
    return Pieces(pretrained_subwords.without_spaces(pieces), places)


def cover(places: list[tuple[int, int]], extent: tuple[int, int]) -> tuple[int, int] | None:
    """The first and the last piece that overlap a range of characters; None for no piece.

    places: the ranges of the pieces, in the order of the text
    """
    begin, end = extent
    first = bisect_right(places, begin, key=lambda place: place[1])
    behind = bisect_left(places, end, key=lambda place: place[0])
    inside = [
        number
        for number in range(first, behind)
        if max(begin, places[number][0]) < min(end, places[number][1])
    ]
    return (inside[0], inside[-1]) if inside else None


def in_passage(
    rules: str, passage: Callable[[Any], Passage], question: Question
) -> qa_pipeline.Asked:
    """A question and its passage, with the places of the answers."""
    made = passage(question)
    parts: dict[str, object] = {"a question": question.question.strip()}
    parts["a context"] = made.text.strip()
    parts["an answer in the context"] = made.answers or not question.answers
    missing = [name for name, part in parts.items() if not part]
    # Supporting facts that are not sentences of the passage.
    there = {(sentence.title, sentence.number) for sentence in made.sentences}
    lacking = len(set(getattr(question, "supporting_facts", ())) - there)
    return qa_pipeline.Asked(
        [qa_pipeline.one_line(text) for text in (question.question, made.text)],
        record_line(rules, question, made),
        (missing or [""])[0],
        {"supporting facts that the context lacks": lacking} if lacking else {},
    )


def record_line(rules: str, question: Question, passage: Passage) -> str:
    """A question with its passage as a line of JSON."""
    entry = {
        "rules": rules,
        "id": question.id,
        "answers": question.answers,
        "type": getattr(question, "type", None) or "",
        "question": question.question,
        "context": passage.text,
        "places": passage.answers,
        "sentences": [[one.title, one.number, *one.place] for one in passage.sentences],
        "facts": getattr(question, "supporting_facts", ()),
    }
    return json.dumps(entry, ensure_ascii=False) + "\n"


def segmenter(make: Callable[[], Cut]) -> LineFunction:
    """The function from a record to its pieces, places, answer and tags, both as lines of JSON."""
    cut = make()
    cut_context = lru_cache(maxsize=1)(cut)  # SQuAD has several questions about a context

    def segment_line(line: str) -> str:
        record = record_of(line)
        try:
            pieces, places = cut_context(record.context)
            question = cut(record.question).pieces
        except MemAttnError as error:
            raise MemAttnError(f"{record.id!r}: {error}") from None
        answer = cover(places, record.places[0]) if record.places else None
        tags = np.zeros(len(pieces), dtype=np.uint8)
        for sentence in record.sentences:
            if record.supports(sentence):
                held = cover(places, (sentence.begin, sentence.end))
                tags[slice(held[0], held[1] + 1) if held else slice(0)] = 1
        said = record.context[places[answer[0]][0] : places[answer[1]][1]] if answer else ""
        return json.dumps(
            {
                "question": question,
                "context": pieces,
                "places": np.array(places, dtype=int).ravel().tolist(),
                "answer": answer,
                "loose": bool(answer) and said != record.answers[0].strip(),
                "tags": tags.tolist(),
            }
        )

    return segment_line


def write_pieces(
    pipeline: Pipeline, split: str, make: Callable[[], Cut], dictionary: Path, answered: bool
) -> Counter[str]:
    """bin/records/ to pieces/, places/, answers/ and tags/; returns the counts."""
    source = pipeline.path("bin/records", split, "jsonl")
    known = read_words(dictionary)
    counts = Counter({"questions": 0, "pieces of contexts": 0})
    none = 2 * [ABSENT if answered else NOT_PUBLIC]
    with write_all_or_nothing(outputs_of(pipeline, split)) as [*texts, places, answers, tags]:
        lines = tqdm(read_lines(source), desc=f"pieces/{split}", unit=" questions", disable=None)
        for line in map_lines(partial(segmenter, make), lines, pipeline.workers):
            found = json.loads(line)
            for file, part in zip(texts, PARTS, strict=True):
                file.write(" ".join(found[part]) + "\n")
                if unknown := sum(piece not in known for piece in found[part]):
                    counts["pieces not in the dictionary (<unk>)"] += unknown
            counts["questions"] += 1
            counts["pieces of contexts"] += len(found["context"])
            if answered and not found["answer"]:
                counts["without an answer in the pieces"] += 1
            counts["answers that begin or end inside a piece"] += found["loose"]
            numbers = (found["places"], found["answer"] or none, found["tags"])
            for file, values, kind in zip(
                (places, answers, tags), numbers, NUMBERS.values(), strict=True
            ):
                file.buffer.write(np.array(values, dtype=kind).tobytes())
    return counts


def outputs_of(pipeline: Pipeline, split: str) -> list[Path]:
    numbers = [pipeline.folder / "bin" / name / split for name in NUMBERS]
    return [*pipeline.paths("pieces", split), *numbers]


def prepare(
    args: argparse.Namespace,
    corpus: qa_pipeline.Corpus,
    passage: Callable[[Any], Passage],
    **options: object,
) -> None:
    """From JSON to bin/. options: the options that the text depends on."""
    pipeline = Pipeline(args.output, PARTS, workers=args.workers, force=args.force)
    sources = qa_pipeline.find_sources(args, corpus)
    check_options(args, sources)
    ask = partial(in_passage, corpus.rules, passage)
    answered = qa_pipeline.write_texts(pipeline, args, corpus, sources, ask, spans=True, **options)
    files, dictionary, make = find_cut(pipeline, args)
    for split in sources:
        records = pipeline.path("bin/records", split, "jsonl")
        pipeline.stages.run(
            f"pieces-{split}",
            [records, *files, dictionary],
            outputs_of(pipeline, split),
            partial(write_pieces, pipeline, split, make, dictionary, split in answered),
            cased=args.cased,
        )
    for part in PARTS:
        pipeline.binarise(splits=list(sources), dictionary=dictionary, part=part)


def check_options(args: argparse.Namespace, sources: Mapping[str, Path]) -> None:
    if not pretrained_subwords.check_bert_options(args):
        qa_pipeline.check_options(args, sources)


def find_cut(
    pipeline: Pipeline, args: argparse.Namespace
) -> tuple[list[Path], Path, Callable[[], Cut]]:
    """The files that the pieces depend on, their dictionary, and the maker of the segmentation."""
    if args.bert_vocab:
        make = partial(bert_cut, args.bert_vocab, not args.cased)
        return [args.bert_vocab], args.dictionary, make
    subwords = qa_pipeline.find_pieces(pipeline, args)
    [model] = subwords.files
    return [model], subwords.dictionary, partial(sentencepiece_cut, model)


def add_arguments(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Add the options of data for span_answering; returns their group."""
    group = parser.add_argument_group("spans", LAYOUT)
    what = "make data for --task span_answering, which predicts answers as spans of the context"
    add_switches(group, {"--spans": what})
    pretrained_subwords.add_bert_arguments(group)
    return group


def check_unused(args: argparse.Namespace) -> None:
    """Raise MemAttnError for options of spans without --spans."""
    for name in ("bert_vocab", "cased", "gold_separated", "repeat_question"):
        if getattr(args, name, None):
            raise MemAttnError(f"--{name.replace('_', '-')} requires --spans")
