"""Scores of answers: exact match, F1, precision and recall, as the official evaluations have them.

HotpotQA (Yang et al., 2018): hotpot_evaluate_v1.py; one answer a question.
SQuAD 1.1 (Rajpurkar et al., 2016): evaluate-v1.1.py; the best of several accepted answers.
"""

import re
import string
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

ARTICLES = re.compile(r"\b(a|an|the)\b")
WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)  # that of ASCII alone
# With HotpotQA's rules these are right or wrong, but never right in part.
VERDICTS = {"yes", "no", "noanswer"}
HOTPOTQA, SQUAD = "hotpotqa", "squad"
RULES = (HOTPOTQA, SQUAD)
Fact = tuple[str, int]  # an article's title, and the number of a sentence of it


class Score(NamedTuple):
    """Of an answer, from 0 to 1, or the mean of many."""

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
    no recall: they are those of the answer of the best F1, the first of several (choice).
    """
    scores = [_score(prediction, answer, rules) for answer in answers]
    best = max(scores, key=lambda score: score.f1)
    return best._replace(exact=max(score.exact for score in scores))


def _score(prediction: str, answer: str, rules: str) -> Score:
    said, right = normalise_answer(prediction), normalise_answer(answer)
    exact = float(said == right)
    if rules == HOTPOTQA and said != right and not VERDICTS.isdisjoint((said, right)):
        return ZERO
    words, wanted = said.split(), right.split()
    same = sum((Counter(words) & Counter(wanted)).values())
    if same == 0:  # nothing against nothing, too: an exact match of F1 0
        return ZERO._replace(exact=exact)
    return _with_f1(exact, same / len(words), same / len(wanted))


def _with_f1(exact: float, precision: float, recall: float) -> Score:
    both = precision + recall
    return Score(exact, 2 * precision * recall / both if both else 0.0, precision, recall)


def score_facts(said: Collection[Fact], right: Collection[Fact]) -> Score:
    """The score of the supporting facts said of a question, as HotpotQA's evaluation has it."""
    same = len(set(said) & set(right))
    exact = float(set(said) == set(right))
    if same == 0:
        return ZERO._replace(exact=exact)
    return _with_f1(exact, same / len(set(said)), same / len(set(right)))


def score_joint(answer: Score, facts: Score) -> Score:
    """The score of a question's answer and supporting facts together, as HotpotQA's evaluation
    has it: the F1 is that of the products of both precisions and of both recalls.

    `ZERO` is the score of what nobody has said.
    """
    return _with_f1(
        answer.exact * facts.exact,
        answer.precision * facts.precision,
        answer.recall * facts.recall,
    )


def total(scores: Iterable[Score]) -> Score:
    """The sum of scores, each measure by itself; `ZERO` of none."""
    columns = zip(ZERO, *scores, strict=True)
    return Score(*map(sum, columns))


def mean(scores: Sequence[Score]) -> Score:
    """The mean of the scores of at least one question."""
    return Score(*(measure / len(scores) for measure in total(scores)))
