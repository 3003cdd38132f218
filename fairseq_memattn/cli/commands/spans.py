"""`memattn spans`: finds answers in contexts with a model of --task span_answering.

A token is scored in the window that has most of its context, and the answer is the best span of all
windows, as in BERT's evaluation of SQuAD. The answer is a part of the original text. Prints exact
match and F1 by the rules of SQuAD or HotpotQA; for HotpotQA also by type of question, and, for a
model with --supporting-facts, of the facts alone and of answers and facts together (joint).
"""

import argparse
from collections.abc import Sequence
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairseq_memattn.cli.commands.answers import official_answers
from fairseq_memattn.cli.shared import models
from fairseq_memattn.cli.shared.options import Options
from fairseq_memattn.cli.shared.outputs import check_outputs, say
from fairseq_memattn.errors import LARGEST, check_least
from fairseq_memattn.evaluation.tables import table
from fairseq_memattn.files import write_json
from fairseq_memattn.qa.answer_scores import (
    HOTPOTQA,
    Fact,
    Score,
    mean,
    score_answer,
    score_facts,
    score_joint,
)
from fairseq_memattn.qa.span_candidates import LONGEST, best_text
from fairseq_memattn.qa.span_records import SpanRecord

if TYPE_CHECKING:
    from fairseq_memattn.data.questions.span_finder import SpanTexts

ALL, FACTS, JOINT = "all", "supporting facts", "joint"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = Options(parser, __doc__)
    add("data", "folder bin that `memattn prepare squad --spans`, or hotpotqa, writes")
    add("--path", "checkpoint of a model of --task span_answering", required=True)
    add("--subset", "default: %(default)s", default="valid")
    add.number(
        "--n-best",
        "number of best spans kept in each window and in all (default: %(default)s)",
        default=20,
    )
    add.number(
        "--max-answer",
        "maximum number of tokens of an answer (default: %(default)s)",
        default=LONGEST,
    )
    add.file(
        "--predictions",
        "write the answers by id as JSON for the official evaluation, with the supporting "
        "facts of HotpotQA if the model has --supporting-facts",
    )
    add.file("--nbest", "write the best answers to each question")
    add.file("--json", "also write the table as JSON")
    add("--max-tokens", "tokens of a padded batch (default: %(default)s)", type=int, default=16384)
    add.switch("--cpu", "compute on the CPU even if there is a GPU")


def check(args: argparse.Namespace) -> None:
    for name in ("n_best", "max_answer", "max_tokens"):
        check_least(args, name, 1, LARGEST)
    outputs = {f"--{name}": getattr(args, name) for name in ("predictions", "nbest", "json")}
    check_outputs(outputs, [*models.folders(args.data), *models.checkpoints(args.path)])
    models.check_paths(args.data, args.path, one_model=True, one_folder=True)


def run(args: argparse.Namespace) -> None:
    check(args)
    import torch

    from fairseq_memattn.data.questions.span_finder import SpanFinder

    # Without eval_answers the task also loads splits whose answers are not public.
    state, task = models.open_checkpoint(
        args.path, args.data, only="span_answering", eval_answers=False
    )
    texts = load_texts(task, Path(args.data), args.subset)
    model = models.load_model(args.path, args.data, state, task)
    model.to("cuda" if torch.cuda.is_available() and not args.cpu else "cpu").eval()
    options = {"longest": args.max_answer, "most": args.n_best}
    found = SpanFinder(texts.dataset, texts.places, **options).find(model, args.max_tokens)
    listed = [
        texts.answers(number, one.candidates, args.n_best) for number, one in enumerate(found)
    ]
    predictions = [best_text(answers) for answers in listed]
    facts = predicted_facts(texts, found) if texts.dataset.tags is not None else None
    if args.nbest:
        best = {
            record.id: [answer._asdict() for answer in answers]
            for record, answers in zip(texts.records, listed, strict=True)
        }
        write_json(args.nbest, best)
    report(args, texts.records, predictions, facts)


def load_texts(task: Any, folder: Path, subset: str) -> "SpanTexts":
    from fairseq_memattn.data.questions.span_finder import read_texts

    path = folder / "records" / f"{subset}.jsonl"
    if not path.is_file():
        raise ValueError(f"--subset {subset}: there is no {path}")
    task.load_dataset(subset)
    dataset = task.dataset(subset)
    if dataset.cut:
        say(
            f"warning: {dataset.cut} of {len(dataset.lengths)} questions of {subset} lose their "
            f"end to the --max-question {task.cfg.max_question} of the training"
        )
    return read_texts(dataset, folder, subset)


def predicted_facts(texts: "SpanTexts", found: Sequence[Any]) -> list[list[Fact]]:
    """The supporting facts that the model finds for each question."""
    from fairseq_memattn.data.questions.span_finder import supporting

    facts = []
    for number, (record, one) in enumerate(zip(texts.records, found, strict=True)):
        extents = [(sentence.begin, sentence.end) for sentence in record.sentences]
        marks = supporting(texts.places_of(number), one.facts, extents)
        facts.append([(one.title, one.number) for one in compress(record.sentences, marks)])
    return facts


def report(
    args: argparse.Namespace,
    records: Sequence[SpanRecord],
    predictions: Sequence[str],
    facts: Sequence[list[Fact]] | None,
) -> None:
    """Writes the files of the options and prints the table."""
    rows = scores_by_type(records, predictions)
    if facts is not None and any(record.facts for record in records):
        rows |= scores_with_facts(records, predictions, facts)
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
    print(results_text(records, predictions, rows))


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


def scores_with_facts(
    records: Sequence[SpanRecord], predictions: Sequence[str], facts: Sequence[list[Fact]]
) -> dict[str, tuple[int, Score]]:
    """The same for supporting facts and, if all answers are public, for both together."""
    found = [score_facts(said, record.facts) for said, record in zip(facts, records, strict=True)]
    rows = {FACTS: (len(found), mean(found))}
    if all(record.answers for record in records):
        joint = [
            score_joint(score_answer(prediction, record.answers, record.rules), score)
            for record, prediction, score in zip(records, predictions, found, strict=True)
        ]
        rows[JOINT] = len(joint), mean(joint)
    return rows


def results_text(
    records: Sequence[SpanRecord], predictions: Sequence[str], rows: dict[str, tuple[int, Score]]
) -> str:
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
