"""`memattn spans`: answers cut out of their contexts by a model of --task span_answering.

Each token is judged in the window that has most of its context, and the best spans of all windows
compete, as in BERT's evaluation of SQuAD. The text of an answer is the original one. Prints exact
match and F1 by the rules of SQuAD or HotpotQA; of HotpotQA also for each type of question.
"""

import argparse
from collections.abc import Sequence
from itertools import compress
from pathlib import Path
from typing import Any, NamedTuple

from fairseq_memattn.cli.answers import official_answers, write_json
from fairseq_memattn.cli.models import check_paths, checkpoints, load_model, open_checkpoint
from fairseq_memattn.cli.outputs import check_outputs
from fairseq_memattn.evaluation.reading_comprehension import (
    HOTPOTQA,
    Fact,
    Score,
    mean,
    score_answer,
    score_facts,
)
from fairseq_memattn.evaluation.span_candidates import answers_of
from fairseq_memattn.evaluation.span_records import SpanRecord, read_numbers, read_span_records
from fairseq_memattn.evaluation.tables import table

ALL, FACTS = "all", "supporting facts"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = __doc__
    add = parser.add_argument
    add("data", help="folder bin that data_prep/squad.py --spans, or hotpotqa.py, has written")
    add("--path", required=True, help="checkpoint of a model of --task span_answering")
    add("--subset", default="valid", help="default: %(default)s")
    add(
        "--n-best",
        type=int,
        default=20,
        metavar="N",
        help="spans to choose from, in each window and then in all (default: %(default)s)",
    )
    add(
        "--max-answer",
        type=int,
        default=30,
        metavar="N",
        help="the most tokens of an answer (default: %(default)s)",
    )
    add(
        "--predictions",
        type=Path,
        metavar="FILE",
        help="write the answers by id as JSON, as the official evaluation takes them; of HotpotQA, "
        "by a model with --supporting-facts, these as well",
    )
    add("--nbest", type=Path, metavar="FILE", help="write the best answers to each question")
    add("--json", type=Path, metavar="FILE", help="also write the table as JSON")
    add("--max-tokens", type=int, default=16384, help="of a padded batch (default: %(default)s)")
    add("--cpu", action="store_true", help="compute on the CPU though there is a GPU")


def check(args: argparse.Namespace) -> None:
    """Refuses flags that make no sense, before anything is loaded."""
    for name in ("n_best", "max_answer", "max_tokens"):
        if getattr(args, name) < 1:
            flag = "--" + name.replace("_", "-")
            raise ValueError(f"{flag} must be at least 1, but is {getattr(args, name)}")
    outputs = {f"--{name}": getattr(args, name) for name in ("predictions", "nbest", "json")}
    check_outputs(outputs, checkpoints(args.path))
    check_paths(args.data, args.path)
    if len(checkpoints(args.path)) > 1:
        raise ValueError(f"--path must be one checkpoint, but is {args.path}")


class Data(NamedTuple):
    """A split: the task's data set, its records, and (T, 2) characters of all contexts' tokens."""

    dataset: Any
    records: list[SpanRecord]
    places: Any

    def places_of(self, number: int) -> Any:
        """Those of one question's context."""
        begin = self.dataset.begins[number]
        return self.places[begin : begin + self.dataset.lengths[number]]


def run(args: argparse.Namespace) -> None:
    check(args)
    import fairseq_memattn

    fairseq_memattn.register()
    import torch

    from fairseq_memattn.decoding.spans import SpanFinder

    state, task = open_checkpoint(args.path, args.data)
    trained = state["cfg"]["task"]["_name"]
    if trained != "span_answering":
        raise ValueError(
            f"--path {args.path}: trained with --task {trained}, but only span_answering has a "
            "head for spans"
        )
    data = load_data(task, Path(args.data.split(":")[0]), args.subset)
    model = load_model(args.path, args.data, state, task)
    model.to("cuda" if torch.cuda.is_available() and not args.cpu else "cpu").eval()
    finder = SpanFinder(model, data.dataset, data.places, longest=args.max_answer, most=args.n_best)
    found = finder.find(args.max_tokens)
    listed = [
        answers_of(one.candidates, record.context, data.places_of(number), args.n_best)
        for number, (record, one) in enumerate(zip(data.records, found, strict=True))
    ]
    predictions = [answers[0].text if answers else "" for answers in listed]
    facts = said_facts(data, found) if data.dataset.tags is not None else None
    report(args, data.records, predictions, facts)
    if args.nbest:
        best = {
            record.id: [answer._asdict() for answer in answers]
            for record, answers in zip(data.records, listed, strict=True)
        }
        write_json(args.nbest, best)


def load_data(task: Any, folder: Path, subset: str) -> Data:
    """Raises ValueError where something is missing or does not belong together."""
    path = folder / "records" / f"{subset}.jsonl"
    if not path.is_file():
        raise ValueError(f"--subset {subset}: there is no {path}")
    records = list(read_span_records(path))
    task.load_dataset(subset)
    dataset = task.dataset(subset)
    if len(records) != len(dataset.lengths):
        raise ValueError(
            f"{path}: has {len(records)} records, but there are {len(dataset.lengths)} questions"
        )
    places = read_numbers(folder, "places", subset, 2 * int(dataset.lengths.sum()))
    return Data(dataset, records, places.reshape(-1, 2))


def said_facts(data: Data, found: Sequence[Any]) -> list[list[Fact]]:
    """The supporting facts that the model finds, of each question."""
    from fairseq_memattn.decoding.spans import supporting

    facts = []
    for number, (record, one) in enumerate(zip(data.records, found, strict=True)):
        extents = [(sentence.begin, sentence.end) for sentence in record.sentences]
        marks = supporting(data.places_of(number), one.facts, extents)
        facts.append([(one.title, one.number) for one in compress(record.sentences, marks)])
    return facts


def report(
    args: argparse.Namespace,
    records: Sequence[SpanRecord],
    predictions: Sequence[str],
    facts: Sequence[list[Fact]] | None,
) -> None:
    """Prints and writes what the options ask for."""
    rows = scores_by_type(records, predictions)
    if facts is not None and any(record.facts for record in records):
        scores = [
            score_facts(said, record.facts) for said, record in zip(facts, records, strict=True)
        ]
        rows[FACTS] = len(scores), mean(scores)
    print(results_text(records, predictions, rows))
    if args.predictions:
        content = official_answers(predictions, records)
        if facts is not None and records[0].rules == HOTPOTQA:
            content["sp"] = {r.id: said for r, said in zip(records, facts, strict=True)}
        write_json(args.predictions, content)
    if args.json:
        content = {
            name: {"questions": size} | score._asdict() for name, (size, score) in rows.items()
        }
        write_json(args.json, content)


def scores_by_type(
    records: Sequence[SpanRecord], predictions: Sequence[str]
) -> dict[str, tuple[int, Score]]:
    """Number and mean score of the questions with public answers, all and by type."""
    scores: dict[str, list[Score]] = {}
    for record, prediction in zip(records, predictions, strict=True):
        if record.answers:
            score = score_answer(prediction, record.answers, record.rules)
            for name in (ALL, record.type) if record.type else (ALL,):
                scores.setdefault(name, []).append(score)
    return {name: (len(group), mean(group)) for name, group in sorted(scores.items())}


def results_text(
    records: Sequence[SpanRecord],
    predictions: Sequence[str],
    rows: dict[str, tuple[int, Score]],
) -> str:
    """A table with a row for each type of question."""
    empty = sum(not text for text in predictions)
    said = f"{len(records)} questions by the rules of {records[0].rules}, {empty} without an answer"
    if not rows:
        return f"{said}; the right answers are not public"
    header = ["questions", "number", "EM", "F1", "precision", "recall"]
    lines = [
        [name, f"{size}", *(f"{100 * measure:.3f}" for measure in score)]
        for name, (size, score) in rows.items()
    ]
    return f"{said}\n{table([header, *lines])}"
