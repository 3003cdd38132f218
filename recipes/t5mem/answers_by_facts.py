"""Exact match of answers about generated stories by the number of supporting facts.

    python recipes/t5mem/answers_by_facts.py PREDICTIONS --gold STORIES/json/test.json

PREDICTIONS is what `memattn answers --predictions` writes. The last column is the exact match that
the most frequent answer has.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from fairseq_memattn.cli.commands.answers import check_records, read_answers
from fairseq_memattn.evaluation.tables import table
from fairseq_memattn.files import read_json
from fairseq_memattn.qa.answer_scores import SQUAD, score_answer
from fairseq_memattn.qa.question_sets import Record, read_records


def read_facts(path: Path, records: Sequence[Record]) -> list[int]:
    """The number of facts of each question. Raises ValueError for another file of questions."""
    facts: list[object] = []
    if records and records[0].rules == SQUAD:
        paragraphs = [text for article in read_json(path)["data"] for text in article["paragraphs"]]
        facts = [question.get("facts") for text in paragraphs for question in text["qas"]]
    numbers = [len(one) for one in facts if isinstance(one, list)]
    if not numbers or len(numbers) < len(facts):
        raise ValueError(f"--gold {path}: not a file of `memattn prepare stories`, with facts")
    return numbers


def row(name: str, predictions: Sequence[str], records: Sequence[Record]) -> list[str]:
    """The name, the number of questions, and the exact match of answers and the most frequent."""
    answers = Counter(record.answers[0] for record in records)
    [(_, majority)] = answers.most_common(1)
    right = sum(
        score_answer(prediction, record.answers, SQUAD).exact
        for prediction, record in zip(predictions, records, strict=True)
    )
    shares = [f"{100 * number / len(records):.1f}" for number in (right, majority)]
    return [name, str(len(records)), *shares]


def results(predictions: Sequence[str], records: Sequence[Record], facts: Sequence[int]) -> str:
    """A table with a row for each number of facts, and one for all questions."""
    rows = [["facts", "questions", "exact match", "most frequent answer"]]
    for number in sorted(set(facts)):
        chosen = [index for index, count in enumerate(facts) if count == number]
        parts = ([given[index] for index in chosen] for given in (predictions, records))
        rows.append(row(str(number), *parts))
    return table([*rows, row("all", predictions, records)])


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("predictions", type=Path, help="answers by id as JSON")
    parser.add_argument("--gold", type=Path, required=True, help="the stories")
    args = parser.parse_args(argv)
    try:
        for path in (args.predictions, args.gold):
            if not path.is_file():
                raise ValueError(f"{path}: there is no such file")
        records = read_records(args.gold)
        facts = read_facts(args.gold, records)
        check_records(args.gold, records)
        print(results(read_answers(args.predictions, records), records, facts))
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
