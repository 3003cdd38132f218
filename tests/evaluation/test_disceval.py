"""DiscEvalMT: its groups, and its counts by pronoun, type and block."""

import json
from collections import Counter

import pytest
from corpora import corpus, needs

from fairseq_memattn.cli import main
from fairseq_memattn.evaluation.contrastive import Group
from fairseq_memattn.evaluation.contrastive_sets import read_set

BEES, BEE = "The bees?", "They sleep."
ANAPHORA = {
    "10": {
        "src": [BEES, BEE],
        "trg": [
            {"correct": ["A", "Elles"], "incorrect": ["A", "Ils"], "type": "f.pl"},
            {"semi-correct": ["B", "Ils"], "incorrect": ["B", "Elles"], "type": "m.pl"},
        ],
    },
    "9": {
        "src": ["It?", "It."],
        "trg": [
            {"correct": ["C", "Il"], "incorrect": ["C", "Elle"], "type": "m.sg"},
            {"correct": ["D", "Elle"], "incorrect": ["D", "Il"], "type": "f.sg"},
            {"semi-correct": ["E", "Elle"], "incorrect": ["E", "Il"], "type": "f.sg"},
        ],
    },
}
LEXICAL = {
    "1": {
        "type": "repet",
        "examples": [
            {"src": ["Soup?", "Soup."], "trg": {"correct": ["A", "a"], "incorrect": ["A", "b"]}},
            {"src": ["Soup?", "Soup."], "trg": {"correct": ["B", "b"], "incorrect": ["B", "a"]}},
        ],
    }
}


def write(folder, name, content):
    path = folder / name
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def judged(folder, sets, scores):
    """The results of the command for scores in a file."""
    (folder / "scores").write_text("".join(f"{score}\n" for score in scores), encoding="utf-8")
    out = folder / "out.json"
    command = ["contrast", "--sets", *map(str, sets), "--scores", str(folder / "scores")]
    assert main([*command, "--json", str(out)]) == 0
    return json.loads(out.read_text(encoding="utf-8"))["results"]


def test_blocks_are_in_the_order_of_their_numbers(tmp_path):
    first, second, third, *others = read_set(write(tmp_path, "anaphora.json", ANAPHORA))
    assert [each.block for each in (first, second, third, *others)] == ["9"] * 3 + ["10"] * 2
    assert third == Group(
        ("It?", "It."), (("E", "Elle"), ("E", "Il")), 0, "anaphora",
        pronoun="f.sg", kind="semi-correct", block="9",
    )  # fmt: skip
    assert others[0].source == (BEES, BEE)
    lexical = read_set(write(tmp_path, "lexical-choice.json", LEXICAL))
    assert [(each.kind, each.pronoun, each.true) for each in lexical] == [
        ("repet", None, ("A", "a")), ("repet", None, ("B", "b")),
    ]  # fmt: skip


def test_counts_by_pronoun_type_and_block(tmp_path, capsys):
    sets = [
        write(tmp_path, "anaphora.json", ANAPHORA),
        write(tmp_path, "lexical-choice.json", LEXICAL),
    ]
    scores = [-1, -2, -1, -1, -2, -1] + [-1, -2, -1, -2] + [-1, -2, -2, -1]
    summary = judged(tmp_path, sets, scores)
    assert capsys.readouterr().out.splitlines() == [
        "                         groups  lines  right  ties  repeated  accuracy  chance",
        "anaphora                      5     10      3     1         0    60.0 %  50.0 %",
        "  f.pl                        1      2      1     0         0   100.0 %  50.0 %",
        "    correct                   1      2      1     0         0   100.0 %  50.0 %",
        "  f.sg                        2      4      0     1         0     0.0 %  50.0 %",
        "    correct                   1      2      0     1         0     0.0 %  50.0 %",
        "    semi-correct              1      2      0     0         0     0.0 %  50.0 %",
        "  m.pl                        1      2      1     0         0   100.0 %  50.0 %",
        "    semi-correct              1      2      1     0         0   100.0 %  50.0 %",
        "  m.sg                        1      2      1     0         0   100.0 %  50.0 %",
        "    correct                   1      2      1     0         0   100.0 %  50.0 %",
        "  correct                     3      6      2     1         0    66.7 %  50.0 %",
        "  semi-correct                2      4      1     0         0    50.0 %  50.0 %",
        "  blocks with all right       2             1                    50.0 %  18.8 %",
        "lexical-choice                2      4      1     0         0    50.0 %  50.0 %",
        "  repet                       2      4      1     0         0    50.0 %  50.0 %",
        "  blocks with all right       1             0                     0.0 %  25.0 %",
        "total                         7     14      4     1         0    57.1 %  50.0 %",
        f"log-likelihoods of {tmp_path / 'scores'}, ties never right",
    ]
    assert summary["phenomena"]["anaphora"]["blocks"]["all_right"] == ["anaphora 10"]
    assert summary["total"]["blocks"] == {
        "blocks": 3, "right": 1, "accuracy": 1 / 3, "all_right": ["anaphora 10"],
        "chance": pytest.approx((1 / 8 + 1 / 4 + 1 / 4) / 3),
    }  # fmt: skip


@needs("disceval-en-fr")
@pytest.mark.parametrize(
    ("name", "kinds", "pronouns"),
    [
        (
            "anaphora",
            {"correct": 100, "semi-correct": 100},
            dict.fromkeys(("f.pl", "f.sg", "m.pl", "m.sg"), 50),
        ),
        ("lexical-choice", {"disambig": 172, "repet": 22, "repet, disambig": 6}, {None: 200}),
    ],
)
def test_the_official_sets_are_read_whole(name, kinds, pronouns):
    found = read_set(corpus("disceval-en-fr") / f"{name}.json")
    assert Counter(each.kind for each in found) == kinds
    assert Counter(each.pronoun for each in found) == pronouns


PAIR = {"correct": ["A", "a"], "incorrect": ["A", "b"], "type": "m.sg"}


def block(pair, source=("A", "B")):
    return {"1": {"src": source, "trg": [pair]}}


WRONG_SETS = [
    ({}, "set.json must hold an object of blocks"),
    ({"1": {"examples": [1]}}, "block 1: each of examples must be an object with src and trg"),
    (block({}), "pair 1: must have either correct or sem"),
    (block(PAIR | {"semi-correct": ["A", "a"]}), "pair 1: must have either correct or semi-correc"),
    (block(PAIR, ["A"]), "pair 1: the source has 1 sentences, but a cand"),
    (block(PAIR, ["A", ""]), "pair 1: a sentence is empty"),
]


def test_files_that_are_not_disceval(tmp_path):
    for content, message in WRONG_SETS:
        with pytest.raises(ValueError, match=message):
            read_set(write(tmp_path, "set.json", content))
