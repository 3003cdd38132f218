"""`memattn answers`: exact match and F1, as HotpotQA's or SQuAD's evaluation computes them."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fairseq_memattn.cli.shared.inputs import require_file
from fairseq_memattn.cli.shared.options import Options
from fairseq_memattn.cli.shared.outputs import check_outputs
from fairseq_memattn.evaluation.fairseq_output import detokenise, read_lines, read_shards
from fairseq_memattn.evaluation.tables import table
from fairseq_memattn.files import parse_json, write_json
from fairseq_memattn.qa.answer_scores import HOTPOTQA, Score, mean, score_answer
from fairseq_memattn.qa.question_sets import Record, read_records


def add_arguments(parser: argparse.ArgumentParser) -> None:
    given = Options(parser.add_mutually_exclusive_group(required=True))
    given.file(
        "--generated",
        "output of fairseq-generate, one file or one per shard; SentencePiece's pieces are joined",
        nargs="+",
    )
    given.file(
        "--answers", "answers by id as JSON, in the format of HotpotQA's or SQuAD's evaluation"
    )
    add = Options(parser)
    add.file(
        "--gold",
        "the official JSON file of HotpotQA or SQuAD, or bin/records/SPLIT.jsonl of the "
        "prepared data, which lists the questions that the data have",
        required=True,
    )
    add.file("--predictions", "also write the answers by id as JSON for the official evaluation")
    add.file("--json", "also write the results as JSON")


def run(args: argparse.Namespace) -> None:
    inputs = {"--gold": [args.gold]}
    inputs |= {"--answers": [args.answers]} if args.answers else {"--generated": args.generated}
    for option, paths in inputs.items():
        for path in paths:
            require_file(option, path)
    read = [path for paths in inputs.values() for path in paths]
    check_outputs({"--predictions": args.predictions, "--json": args.json}, read)
    records = read_records(args.gold)
    check_records(args.gold, records)
    if args.answers:
        predictions = read_answers(args.answers, records)
    else:
        predictions = detokenise(read_shards(args.generated, len(records)), None)
    rules = records[0].rules
    score = mean(
        [
            score_answer(prediction, record.answers, rules)
            for prediction, record in zip(predictions, records, strict=True)
        ]
    )
    empty = sum(not prediction.strip() for prediction in predictions)
    if args.predictions:
        write_json(args.predictions, official_answers(predictions, records))
    if args.json:
        counts = {"rules": rules, "questions": len(records), "empty_predictions": empty}
        write_json(args.json, counts | score._asdict())
    print(results_text(rules, len(records), empty, score))


def check_records(path: Path, records: Sequence[Record]) -> None:
    if not records:
        raise ValueError(f"--gold {path} has no questions")
    for record in records:
        if not record.answers:
            raise ValueError(f"--gold {path}: the question {record.id!r} has no accepted answer")
        if record.rules != records[0].rules:
            raise ValueError(
                f"--gold {path}: {record.id!r} has the rules of {record.rules}, but "
                f"{records[0].id!r} has those of {records[0].rules}"
            )


def read_answers(path: Path, records: Sequence[Record]) -> list[str]:
    """The answer of each record, from JSON by id."""
    text = "\n".join(read_lines(path))
    content = parse_json(text, f"--answers {path}", object_pairs_hook=_without_duplicates)
    answers = content.get("answer", content) if isinstance(content, dict) else None
    if not isinstance(answers, dict):
        raise ValueError(
            f'--answers {path} must be {{id: answer}} or {{"answer": {{id: answer}}, "sp": ...}}'
        )
    known = {record.id for record in records}
    for name, answer in answers.items():
        if name not in known:
            raise ValueError(f"--answers {path}: the id {name!r} is not in --gold")
        if not isinstance(answer, str):
            raise ValueError(
                f"--answers {path}: the answer to {name!r} must be text, but is {answer!r}"
            )
    missing = [record.id for record in records if record.id not in answers]
    if missing:
        raise ValueError(
            f"--answers {path} lacks {len(missing)} of the {len(records)} questions, the first "
            f"being {missing[0]!r}"
        )
    return [answers[record.id] for record in records]


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key!r} occurs twice")
        found[key] = value
    return found


def official_answers(predictions: Sequence[str], records: Sequence[Record]) -> dict[str, Any]:
    """The answers in the official format; the supporting facts of HotpotQA's are empty."""
    by_id = {record.id: text for record, text in zip(records, predictions, strict=True)}
    return {"answer": by_id, "sp": {}} if records[0].rules == HOTPOTQA else by_id


def results_text(rules: str, questions: int, empty: int, score: Score) -> str:
    numbers = [f"{100 * measure:.3f}" for measure in score]
    header = ["rules", "questions", "empty predictions", "EM", "F1", "precision", "recall"]
    return table([header, [rules, f"{questions}", f"{empty}", *numbers]])
