"""Generative context sets: the rule of ctxpro's scorer, its published counts, and significance."""

import json
import random
from itertools import product

import pytest
from corpora import corpus, needs
from full import full

from fairseq_memattn.cli import main
from fairseq_memattn.evaluation.generative import has_form, p_value
from fairseq_memattn.evaluation.tables import p_text

CTXPRO = corpus("ctxpro-en-de")
ENTRIES = [
    {"expected": "weiß", "rule": "DO.ELL", "ante distance": 2},
    {"expected": "Will", "rule": "WILL.ELL", "ante distance": 1},
    {"expected": "geht", "rule": "DO.ELL"},
]


def judged(folder, lines, *more, entries=ENTRIES):
    """The JSON of the command for the lines of each file, written by name."""
    pytest.importorskip("sentence_splitter")
    (folder / "auxiliary.test.json").write_text(json.dumps(entries), encoding="utf-8")
    command = ["contrast", "--sets", str(folder / "auxiliary.test.json")]
    for name, text in lines.items():
        (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        command += ["--translations", f"{name}={folder / name}"]
    out = folder / "out.json"
    status = main([*command, "--json", str(out), *(more or ("--lang", "de"))])
    return json.loads(out.read_text(encoding="utf-8")) if status == 0 else status


@pytest.mark.parametrize(
    ("sentence", "expected", "correct"),
    [
        ("Das WEISS ich.", "weiss", True),
        ("- Ich weiß.", "weiß", True),
        ("Ich weißt.", "weiß", False),
        ('"Will"?', "Will", True),
        ("„Will“?", "will", False),  # typographic quotation marks stay
        ("Wie geht's?", "gehts", True),
        ("Ich habe\tgesagt", "gesagt", False),  # a word ends at a space
        ("Das habe ich  nicht gesagt", "nicht gesagt", True),
        ("", "weiß", False),
    ],
)
def test_a_form_stands_between_spaces(sentence, expected, correct):
    assert has_form(sentence, expected) is correct


def test_only_the_last_sentence_counts(tmp_path):
    text = (
        "Ich weiß. Das ist Prof. Weiß.\nIch will. Er auch nicht.\nUnd dann … Das geht z.B. hier.\n"
    )
    whole, *parts = judged(tmp_path, {"text": text})
    counts = {"set": "auxiliary.test", "category": "auxiliary", "system": "text"}
    assert whole == counts | {"correct": 2, "total": 3, "accuracy": pytest.approx(200 / 3)}
    assert parts == [
        counts | {"rule": "DO.ELL", "correct": 2, "total": 2, "accuracy": 100},
        counts | {"rule": "WILL.ELL", "correct": 0, "total": 1, "accuracy": 0},
        counts | {"distance": 1, "correct": 0, "total": 1, "accuracy": 0},
        counts | {"distance": 2, "correct": 1, "total": 1, "accuracy": 100},
    ]


@needs("ctxpro-en-de")
@pytest.mark.parametrize(
    ("name", "category", "sentences", "contexts", "total"),
    [
        ("auxiliary", "auxiliary", 249, 1272, 3180),
        full("mini.formality", "formality", 4751, 5792, 10800),
    ],
)
def test_the_counts_of_ctxpros_scorer(tmp_path, name, category, sentences, contexts, total):
    pytest.importorskip("sentence_splitter")
    out = tmp_path / "out.json"
    command = ["contrast", "--sets", str(CTXPRO / f"{name}.opensubtitles.en-de.test.json")]
    for kind in ("sentences", "contexts"):
        file = CTXPRO / f"deepl.{name}.opensubtitles.en-de.test.{kind}"
        command += ["--translations", f"{kind}={file}"]
    assert main([*command, "--lang", "de", "--json", str(out)]) == 0
    entries = json.loads(out.read_text(encoding="utf-8"))
    whole = [each for each in entries if not {"rule", "distance"} & each.keys()]
    assert entries[0] == whole[0]
    assert [each["correct"] for each in whole] == [sentences, contexts]
    assert {(each["category"], each["total"]) for each in whole} == {(category, total)}
    assert whole[1]["p"] < 1e-50
    rules = [each for each in entries if "rule" in each]
    assert sum(each["correct"] for each in rules) == sentences + contexts


def test_p_is_the_share_of_all_divisions_that_are_as_uneven():
    random.seed(3)
    for size in (1, 2, 5, 8):
        base, other = (random.choices([False, True], k=size) for _ in range(2))
        gains = [b - a for a, b in zip(base, other, strict=True) if a != b]
        divisions = list(product((-1, 1), repeat=len(gains)))
        uneven = sum(abs(sum(division)) >= abs(sum(gains)) for division in divisions)
        assert p_value(base, other) == pytest.approx(uneven / len(divisions))


BAD_TEXT = [
    ("one\ntwo\n", "", "text has 2 lines, but --sets have 3 examples"),
    ("a\nb\nc\n", "--user-dir .", "--lang is missing"),
    ("a\nb\nc\n", "--lang de --scores x", "--translations takes neither"),
]
BAD_ENTRIES = [
    ({"rule": "A"}, "group 1: expected must be a string with text, but is None"),
    ({"expected": "a", "rule": 3}, "group 1: rule must be a string with text, but is 3"),
    ({"expected": "a", "rule": "A", "ante distance": "1"}, "ante distance must be an integer"),
]


def test_bad_text_and_bad_sets_are_errors(tmp_path, capsys):
    for text, more, message in BAD_TEXT:
        assert judged(tmp_path, {"text": text}, *more.split()) != 0
        assert message in capsys.readouterr().err
        assert not (tmp_path / "out.json").exists()
    for entry, message in BAD_ENTRIES:
        assert judged(tmp_path, {"text": "a\n"}, entries=[entry]) != 0
        assert message in capsys.readouterr().err


def test_empty_lines_are_wrong_and_counted(tmp_path, capsys):
    whole = judged(tmp_path, {"text": "weiß\n\ngeht\n"})[0]
    assert (whole["correct"], whole["total"]) == (2, 3)
    assert "1 of 3 lines are empty, first line 2" in capsys.readouterr().err


def test_no_p_is_zero():
    assert [p_text(p) for p in (1.0, 0.00012, 0.0001, 0.00004)] == [
        *("1.0000", "0.0001", "0.0001", "<0.0001")
    ]
