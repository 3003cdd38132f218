"""Exact match, F1, precision and recall against values worked out by hand."""

import pytest

from fairseq_memattn.qa.answer_scores import (
    HOTPOTQA,
    RULES,
    SQUAD,
    ZERO,
    Score,
    mean,
    normalise_answer,
    score_answer,
    score_facts,
    score_joint,
)

NOTHING = (0, 0, 0, 0)


@pytest.mark.parametrize(
    "text, expected",
    [
        ("The  Cat,\tsat!", "cat sat"),
        ("an a the", ""),
        ("...", ""),
        ("U.S.A.", "usa"),
        ("The-ory of a. b", "theory of b"),  # punctuation goes first, and joins what it parted
        ("Don't", "dont"),
        ("a1 theatre", "a1 theatre"),
        ("«Ça va» — ÉTÉ", "«ça va» — été"),  # only ASCII's punctuation goes
        ("a\u00a0b\u2003the c", "b c"),
        ("à the é", "à é"),
    ],
)
def test_answers_are_normalised(text: str, expected: str) -> None:
    assert normalise_answer(text) == expected


@pytest.mark.parametrize(
    "prediction, answer, expected",
    [
        ("The Eiffel Tower", "eiffel tower!", (1, 1, 1, 1)),
        ("the tall tower", "tower", (0, 2 / 3, 1 / 2, 1)),
        ("tower", "a tall iron tower", (0, 1 / 2, 1, 1 / 3)),
        ("b b c", "b c c d", (0, 2 * (2 / 3) * (1 / 2) / (2 / 3 + 1 / 2), 2 / 3, 1 / 2)),
        ("ÉTÉ 1900", "été 1901", (0, 1 / 2, 1 / 2, 1 / 2)),
        ("dog", "cat", NOTHING),
        ("", "cat", NOTHING),
        ("the", "cat", NOTHING),
        ("the", "a", (1, 0, 0, 0)),  # no word on either side: the same, but no word in common
        ("", "", (1, 0, 0, 0)),
    ],
)
@pytest.mark.parametrize("rules", RULES)
def test_one_answer(rules: str, prediction: str, answer: str, expected: tuple[float, ...]) -> None:
    assert score_answer(prediction, [answer], rules) == pytest.approx(expected)


@pytest.mark.parametrize(
    "prediction, answer, in_part",
    [
        ("yes", "yes it is", (0, 1 / 2, 1, 1 / 3)),
        ("yes it is", "Yes.", (0, 1 / 2, 1 / 3, 1)),
        ("no", "no one", (0, 2 / 3, 1, 1 / 2)),
        ("noanswer", "noanswer here", (0, 2 / 3, 1, 1 / 2)),
    ],
)
def test_verdicts_are_right_in_part_by_squads_rules_alone(prediction, answer, in_part):
    assert score_answer(prediction, [answer], HOTPOTQA) == NOTHING
    assert score_answer(prediction, [answer], SQUAD) == pytest.approx(in_part)


def test_the_best_of_several_answers_for_each_measure() -> None:
    answers = ["one two three four", "one two", "one nine"]
    assert score_answer("one two three", answers, SQUAD) == pytest.approx((0, 6 / 7, 1, 3 / 4))
    # The exact match has no word, and so no F1.
    assert score_answer("the", ["cat", "a"], SQUAD) == (1, 0, 0, 0)
    assert score_answer("red cat", ["cat", "dog"], SQUAD) == pytest.approx((0, 2 / 3, 1 / 2, 1))


def test_the_mean_counts_every_question() -> None:
    scores = [Score(1, 1, 1, 1), Score(0, 2 / 3, 1 / 2, 1), Score(0, 0, 0, 0), Score(1, 0, 0, 0)]
    assert mean(scores) == pytest.approx((1 / 2, 5 / 12, 3 / 8, 1 / 2))


@pytest.mark.parametrize(
    "answer, facts, expected",
    [
        ((1, 1, 1, 1), (1, 1, 1, 1), (1, 1, 1, 1)),
        # Precisions 1/2 and 1/2, recalls 1 and 2/3: 1/4 and 2/3, F1 4/11.
        ((0, 2 / 3, 1 / 2, 1), (0, 4 / 7, 1 / 2, 2 / 3), (0, 4 / 11, 1 / 4, 2 / 3)),
        ((1, 1, 1, 1), (0, 2 / 3, 1 / 2, 1), (0, 2 / 3, 1 / 2, 1)),
        ((1, 0, 0, 0), (1, 1, 1, 1), (1, 0, 0, 0)),  # "the" for "a"
        ((1, 1, 1, 1), ZERO, ZERO),
        (ZERO, (1, 1, 1, 1), ZERO),
        (ZERO, ZERO, ZERO),
    ],
)
def test_answers_and_facts_together(answer, facts, expected) -> None:
    assert score_joint(Score(*answer), Score(*facts)) == pytest.approx(expected)


def test_supporting_facts() -> None:
    right = frozenset({("a", 0), ("a", 1), ("b", 0)})
    said = [("a", 0), ("b", 0), ("b", 1), ("c", 1)]
    assert score_facts(said, right) == pytest.approx((0, 4 / 7, 1 / 2, 2 / 3))
    assert score_facts([*said, *said], right) == score_facts(said, right)
    assert score_facts([*right], right) == (1, 1, 1, 1)
    assert score_facts([], right) == ZERO
    assert score_facts([], frozenset()) == (1, 0, 0, 0)
