"""Exact match, F1, precision and recall of answers, as the official evaluations compute them.

HotpotQA (Yang et al., 2018): hotpot_evaluate_v1.py; one answer a question.
SQuAD 1.1 (Rajpurkar et al., 2016): evaluate-v1.1.py; the best of several accepted answers.
"""

import re
import string
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

ARTICLES = re.compile(r"\b(a|an|the)\b")
WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)  # ASCII only
# With HotpotQA's rules, a prediction or answer of these that does not match exactly scores 0.
VERDICTS = {"yes", "no", "noanswer"}
HOTPOTQA, SQUAD = "hotpotqa", "squad"
RULES = (HOTPOTQA, SQUAD)
Fact = tuple[str, int]  # an article's title, and the number of a sentence of it


class Score(NamedTuple):
    """The measures of an answer, from 0 to 1, or their means or sums over answers."""

    exact: float
    f1: float
    precision: float
    recall: float


ZERO = Score(0.0, 0.0, 0.0, 0.0)


def normalise_answer(text: str) -> str:
    """Lower case, without punctuation and then articles, one space between words."""
    return " ".join(ARTICLES.sub(" ", text.lower().translate(WITHOUT_PUNCTUATION)).split())


def score_answer(prediction: str, answers: Sequence[str], rules: str) -> Score:
    """The score of a prediction against the accepted answers, at least one.

    rules: "hotpotqa" or "squad", which differ in `VERDICTS` only.
    Exact match and F1 are each the best over the answers. SQuAD's evaluation has no precision and
    no recall: they are those of the first answer with the best F1 (choice).
    """
    scores = [_score(prediction, answer, rules) for answer in answers]
    best = max(scores, key=lambda score: score.f1)
    return best._replace(exact=max(score.exact for score in scores))


def _score(prediction: str, answer: str, rules: str) -> Score:
    predicted, expected = normalise_answer(prediction), normalise_answer(answer)
    exact = float(predicted == expected)
    if rules == HOTPOTQA and not exact and not VERDICTS.isdisjoint((predicted, expected)):
        return ZERO
    words, expected_words = predicted.split(), expected.split()
    same = sum((Counter(words) & Counter(expected_words)).values())
    if same == 0:  # two empty texts, too, are an exact match with an F1 of 0
        return ZERO._replace(exact=exact)
    return _with_f1(exact, same / len(words), same / len(expected_words))


def _with_f1(exact: float, precision: float, recall: float) -> Score:
    both = precision + recall
    return Score(exact, 2 * precision * recall / both if both else 0.0, precision, recall)


def score_facts(predicted: Collection[Fact], expected: Collection[Fact]) -> Score:
    """The score of the supporting facts of a question, as HotpotQA's evaluation computes it."""
    same = len(set(predicted) & set(expected))
    exact = float(set(predicted) == set(expected))
    if same == 0:
        return ZERO._replace(exact=exact)
    return _with_f1(exact, same / len(set(predicted)), same / len(set(expected)))


def score_joint(answer: Score, facts: Score) -> Score:
    """The joint score of a question's answer and supporting facts, as HotpotQA's evaluation has it.

    Exact match, precision and recall are the products of both; F1 is computed from the latter two.
    A missing prediction has the score `ZERO`.
    """
    return _with_f1(
        answer.exact * facts.exact, answer.precision * facts.precision, answer.recall * facts.recall
    )


def total(scores: Iterable[Score]) -> Score:
    """The sum of each measure over the scores; `ZERO` for no scores."""
    columns = zip(ZERO, *scores, strict=True)
    return Score(*map(sum, columns))


def mean(scores: Sequence[Score]) -> Score:
    """The mean of the scores of at least one question."""
    return Score(*(measure / len(scores) for measure in total(scores)))
