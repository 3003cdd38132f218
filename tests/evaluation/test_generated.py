"""What fairseq-generate printed is read whole or not at all."""

import pytest

from fairseq_memattn.cli.score import last_sentence
from fairseq_memattn.evaluation.generated import detokenise_pieces, read_hypotheses

OUTPUT = """S-1\t▁a\nT-1\t▁b
H-1\t-0.5\t▁second
D-1\t-0.5\tsecond
P-1\t-0.5
H-0\t-0.1\t▁first ▁one
H-0\t-0.9\t▁first ▁two
Translated 2 sentences
"""


@pytest.fixture
def generated(tmp_path):
    path = tmp_path / "generated.txt"
    path.write_text(OUTPUT, encoding="utf-8")
    return path


def test_the_best_hypothesis_of_each_sentence_in_the_order_of_the_input(generated):
    assert read_hypotheses(generated, 2) == ["▁first ▁one", "▁second"]


def test_an_empty_hypothesis_is_a_hypothesis(tmp_path):
    path = tmp_path / "generated.txt"
    path.write_text("H-0\t-0.1\t\n", encoding="utf-8")
    assert read_hypotheses(path, 1) == [""]


@pytest.mark.parametrize(
    ("expected", "message"),
    [(3, "of 2 sentences where 3 were expected; the first missing one is number 2"), (1, "of 2")],
)
def test_a_lost_or_a_surplus_sentence_is_refused(generated, expected, message):
    with pytest.raises(ValueError, match=message):
        read_hypotheses(generated, expected)


def test_pieces_to_text():
    assert detokenise_pieces("▁Где ▁ваш а ▁сумка ? ▁_eos ▁Там .") == "Где ваша сумка? _eos Там."


@pytest.mark.parametrize(
    ("line", "last"), [("A. _eos B. _eos C.", "C."), ("C.", "C."), ("A. _eos", "A. _eos")]
)
def test_last_sentence(line, last):
    assert last_sentence(line, "_eos") == last
