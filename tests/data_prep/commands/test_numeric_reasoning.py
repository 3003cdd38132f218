"""Numeric reasoning over text: every answer is read off the passage again by other means."""

import re
from collections import Counter
from pathlib import Path

import pytest
from fairseq.data import Dictionary, data_utils
from official_archives import lines
from preparing import prepare as run_preparation

from fairseq_memattn.data_prep.commands import numeric_reasoning

WORDS = {
    "have": ["had"],
    "gain": ["recruited", "hired", "gathered", "enlisted", "raised"],
    "lose": ["lost", "dismissed", "abandoned", "released"],
    "take": ["took", "captured", "received", "bought"],
    "give": ["gave", "sent", "sold", "lent"],
}
IRREGULAR = {"lost": "lose", "took": "take", "bought": "buy", "gave": "give", "sent": "send"}
IRREGULAR |= {"sold": "sell", "lent": "lend", "hired": "hire", "raised": "raise"}
IRREGULAR |= {"captured": "capture", "received": "receive", "released": "release"}
KIND = {past: kind for kind, words in WORDS.items() for past in words}
PAST = {IRREGULAR.get(past, past.removesuffix("ed")): past for past in KIND}


def read_passage(passage: str) -> list[tuple]:
    """(agent, past, number, entity, place, partner) of each clause."""
    events = []
    for sentence in passage.removesuffix(".").split(". "):
        clauses = re.split(r" (?=and the |and \d|but )", sentence)
        agent = past = None
        for clause in clauses:
            found = re.fullmatch(
                r"(?:and |but )?(?:[Tt]he (\w+) )?(?:([a-z]+) )?(\d+) (?:of the )?(.+?)"
                r"(?: in ([A-Z][a-z]+))?(?: (?:from|to) the (\w+))?",
                clause,
            )
            assert found, clause
            agent, past = found[1] or agent, found[2] or past
            events.append((agent, past, int(found[3]), found[4], found[5], found[6]))
    return events


def holdings(events: list[tuple]) -> dict[str, Counter]:
    """Who has what in the end."""
    has: dict[str, Counter] = {}
    for agent, past, number, entity, _, partner in events:
        kind = KIND[past]
        sign = -1 if kind in ("lose", "give") else 1
        if kind == "have":
            assert entity not in has.get(agent, {}), "an observation of what was known"
        has.setdefault(agent, Counter())[entity] += sign * number
        if partner:
            has.setdefault(partner, Counter())[entity] -= sign * number
        assert all(count > 0 for counts in has.values() for count in counts.values())
    return has


def of_noun(counts: Counter, noun: str) -> dict[str, int]:
    return {entity: n for entity, n in counts.items() if entity.split()[-1] == noun}


def done(events: list[tuple], entity: str, agent: str, base: str, place: str | None = None) -> int:
    wanted = (agent, PAST[base], entity)
    return sum(
        event[2]
        for event in events
        if (event[0], event[1], event[3]) == wanted and place in (None, event[4])
    )


EXTREME = {"largest": max, "smallest": min}
# What each kind of question asks for; h is who has what, e the events, the rest its groups.
WAYS = {
    r"What was the (largest|smallest) number of (.+) that anyone had": lambda h, e, which, x: (
        EXTREME[which](counts[x] for counts in h.values() if x in counts)
    ),
    r"What was the size of the (largest|smallest) group that the (\w+) had": (
        lambda h, e, which, agent: EXTREME[which](h[agent].values())
    ),
    r"How many more (.+) did the (\w+) have than the (\w+)": lambda h, e, x, a, b: (
        h[a][x] - h[b][x]
    ),
    r"How many fewer (.+) did the (\w+) have than the (\w+)": lambda h, e, x, a, b: (
        h[b][x] - h[a][x]
    ),
    r"How many more (.+) did the (\w+) have than (?!the )(.+)": lambda h, e, x, a, y: (
        h[a][x] - h[a][y]
    ),
    r"How many fewer (.+) did the (\w+) have than (?!the )(.+)": lambda h, e, x, a, y: (
        h[a][y] - h[a][x]
    ),
    r"How many (.+) did the (\w+) and the (\w+) have combined": lambda h, e, x, a, b: (
        h[a][x] + h[b][x]
    ),
    r"How many (\w+) did the (\w+) have in total": lambda h, e, noun, a: sum(
        of_noun(h[a], noun).values()
    ),
    r"How many (\w+) that were not (.+) did the (\w+) have": lambda h, e, noun, attribute, a: (
        sum(of_noun(h[a], noun).values()) - h[a][f"{attribute} {noun}"]
    ),
    r"How many (?!more|fewer)((?:(?! that ).)+) did the (\w+) have": lambda h, e, x, a: h[a][x],
    r"How many (.+) did the (\w+) (?!have)(\w+)": lambda h, e, *what: done(e, *what),
    r"How many (.+) did the (\w+) (?!have)(\w+) in (\w+)": lambda h, e, *what: done(e, *what),
}


def kind_of(question: str) -> str:
    """The one pattern of WAYS that fits."""
    (kind,) = [pattern for pattern in WAYS if re.fullmatch(pattern + r"\?", question)]
    return kind


def answer(passage: str, question: str) -> int:
    """The answer, from the text alone."""
    events = read_passage(passage)
    kind = kind_of(question)
    return WAYS[kind](holdings(events), events, *re.fullmatch(kind + r"\?", question).groups())


def prepare(folder: Path, *options: object, train=400) -> int:
    sizes = ["--train", train, "--valid", 20, "--test", 10]
    argv = ["--output", folder, *sizes, *options]
    return run_preparation(numeric_reasoning, [str(argument) for argument in argv])


@pytest.fixture(scope="module")
def numbers(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("numbers") / "data"
    assert prepare(folder, train=2500) == 0
    return folder


def examples(folder: Path, split: str) -> list[tuple[str, str, str]]:
    parts = [lines(folder / f"text/{split}.{part}") for part in ("passage", "question", "answer")]
    return list(zip(*parts, strict=True))


@pytest.mark.full
def test_answers(numbers):
    kinds, passages = Counter(), []
    for split in ("train", "valid", "test"):
        for passage, question, said in examples(numbers, split):
            assert answer(passage, question) == int(said) > 0, (passage, question)
            assert int(said) not in map(int, re.findall(r"\d+", passage))
            assert passage.count(".") == 5
            kinds[kind_of(question)] += 1
            passages.append(passage)
    assert set(kinds) == set(WAYS) and min(kinds.values()) > 10, kinds
    assert len(set(passages)) == len(passages)


def test_pieces_and_binary_data(numbers):
    shown = numeric_reasoning.pieces("How many Native American troops? 1049 of the 7.")
    assert shown == "how many native american troops ? 1 0 4 9 of the 7 ."
    dictionaries = [
        Dictionary.load(str(numbers / f"bin/dict.{x}.txt")) for x in ("input", "answer")
    ]
    assert dictionaries[0].symbols == dictionaries[1].symbols
    for split in ("train", "valid", "test"):
        sides = [
            data_utils.load_indexed_dataset(
                str(numbers / f"bin/{split}.input-answer.{side}"), dictionary
            )
            for side, dictionary in zip(("input", "answer"), dictionaries, strict=True)
        ]
        rows = examples(numbers, split)
        assert len(sides[0]) == len(sides[1]) == len(rows)
        for number, (passage, question, said) in enumerate(rows[:20]):
            source, target = sides[0][number], sides[1][number]
            eos = dictionaries[0].eos()
            assert dictionaries[0].unk() not in source
            assert (source == eos).sum() == 2 and source[-1] == eos
            first = (source == eos).nonzero()[0].item()
            texts = [dictionaries[0].string(part) for part in (source[:first], source[first:])]
            assert re.sub(r"(?<=\d) (?=\d)", "", texts[0]) == question.lower().replace("?", " ?")
            assert re.sub(r"(?<=\d) (?=\d)", "", texts[1]) == passage.lower().replace(".", " .")
            assert dictionaries[1].string(target) == " ".join(said)
        # GMAT's length of inputs, two chunks of 70.
        assert max(map(len, sides[0])) <= 140


def test_shorter_passages_of_the_same_dictionary(numbers, tmp_path, capsys):
    dictionary = numbers / "bin/dict.input.txt"
    options = ("--sentences", 2, "--dictionary", dictionary)
    assert prepare(tmp_path / "short", *options, train=30) == 0
    assert (tmp_path / "short/bin/dict.answer.txt").read_bytes() == dictionary.read_bytes()
    for passage, question, said in examples(tmp_path / "short", "train"):
        assert passage.count(".") == 2 and answer(passage, question) == int(said)
    few = tmp_path / "dict.txt"
    few.write_text("how 1\nmany 1\n")
    assert prepare(tmp_path / "other", "--dictionary", few, train=30) == 1
    told = capsys.readouterr().err
    assert f"--dictionary {few} lacks " in told and "line 1 of " in told


def test_berts_pieces(numbers, tmp_path, capsys):
    pytest.importorskip("tokenizers", reason="BERT's pieces")
    words = [line.split()[0] for line in lines(numbers / "bin/dict.input.txt")]
    split = max(words, key=len)
    known = [word for word in words if word not in (split, "</s>")]
    names = [*known, split[:3], f"##{split[3:]}"]
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    (tmp_path / "vocab.txt").write_text("".join(f"{name}\n" for name in [*special, *names]))
    (tmp_path / "dict.txt").write_text("".join(f"{name} 1\n" for name in names))
    options = ("--bert-vocab", tmp_path / "vocab.txt")
    options += ("--dictionary", tmp_path / "dict.txt")
    assert prepare(tmp_path / "out", *options, train=2500) == 0
    expected = [
        " ".join(f"{split[:3]} ##{split[3:]}" if word == split else word for word in line.split())
        for line in lines(numbers / "pieces/train.input")
    ]
    assert lines(tmp_path / "out/pieces/train.input") == expected
    capsys.readouterr()
    assert prepare(tmp_path / "other", *options[:2]) == 1
    assert "--bert-vocab requires --dictionary" in capsys.readouterr().err
