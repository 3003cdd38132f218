"""Answers as spans of pieces: offsets, passages, and what is refused on the way."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
from corpora import corpus, needs
from official_archives import lines
from preparing import prepare
from question_files import hotpot_record, squad_file, squad_question, write_json

from fairseq_memattn.data_prep.commands import hotpotqa, squad
from fairseq_memattn.data_prep.pipeline import questions as qa_pipeline
from fairseq_memattn.data_prep.pipeline.spans import bert_cut, cover, sentencepiece_cut
from fairseq_memattn.data_prep.text.passages import hotpot_passage, squad_passage
from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.qa.question_sets import (
    HotpotQuestion,
    Paragraph,
    Span,
    SquadQuestion,
    read_squad,
)
from fairseq_memattn.qa.span_records import read_numbers, read_span_records

REAL = corpus("squad/dev-v1.1.json")
CONTEXT = "Paragraph  0\nis about a cat."  # question_files.squad_file has it


def run(script: Any, output: Path, options: str = "--vocab-size 60", **files: Path) -> int:
    given = [f"{split}={path}" for split, path in files.items()]
    argv = ["--output", str(output), "--spans", *options.split(), "--files", *given]
    return prepare(script, argv)


def train_pieces(path: Path, texts: Any, **options: object) -> Path:
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts),
        model_prefix=str(path),
        character_coverage=1.0,
        minloglevel=2,
        **options,
    )
    return path.with_suffix(".model")


# Offsets.

HARD = [
    ("Hello  world\n\nnew", ["Hello", "world", "new"]),
    ("  lead e\u0301\u00a0b \u337f trail  ", ["lead", "e\u0301", "b", "\u337f", "trail"]),
    ("日本 🎉 é, A\tB\u3000C", ["日本", "🎉", "é,", "A", "B", "C"]),
    ("½ ﬁne", ["½", "ﬁne"]),
    ("\u200bA\u2028B", ["A", "B"]),
    ("", []),
]


@pytest.fixture(scope="module")
def letters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose every piece is a character."""
    folder = tmp_path_factory.mktemp("letters")
    return train_pieces(folder / "spm", [text for text, _ in HARD], model_type="char")


@pytest.mark.parametrize("text, words", HARD)
def test_pieces_know_their_characters(text: str, words: list[str], letters: Path) -> None:
    """Each run of pieces without white space between them is a word of the original text."""
    pieces, places = sentencepiece_cut(letters)(text)
    assert places == sorted(places) and len(pieces) == len(places)
    assert [end for _, end in places] == sorted(end for _, end in places)  # `cover` bisects both
    found: list[list[int]] = []
    for piece, (begin, end) in zip(pieces, places, strict=True):
        assert text[begin:end] == text[begin:end].strip()
        if piece.startswith("\u2581") or not found:
            found.append([])
        if begin < end:
            found[-1] += [begin, end]
    assert [text[min(place) : max(place)] for place in found if place] == words


def test_berts_pieces_know_their_characters(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers", reason="BERT's pieces")
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "cafe", "##s", "Café", "a", ","]
    (tmp_path / "vocab.txt").write_text("".join(f"{name}\n" for name in names))
    text = "A  Cafés,\nzebra Café"
    pieces, places = bert_cut(tmp_path / "vocab.txt", lower_case=True)(text)
    assert pieces == ["a", "cafe", "##s", ",", "<unk>", "cafe"]
    cut = [text[begin:end] for begin, end in places]
    assert cut == ["A", "Café", "s", ",", "zebra", "Café"]
    assert bert_cut(tmp_path / "vocab.txt", lower_case=False)(text).pieces[1:3] == ["Café", "##s"]


def test_pieces_that_cover_an_extent() -> None:
    places = [(0, 0), (0, 2), (2, 2), (2, 5), (6, 7)]
    for begin in range(8):
        for end in range(begin, 8):
            shared = [
                number
                for number, place in enumerate(places)
                if {*range(*place)} & {*range(begin, end)}
            ]
            expected = (shared[0], shared[-1]) if shared else None
            assert cover(places, (begin, end)) == expected


@pytest.mark.full
@needs("squad/dev-v1.1.json")
def test_answers_of_the_official_development_set(tmp_path: Path) -> None:
    """Cut out by the offsets of letters they are what they were; by pieces, some have more."""
    questions = list(read_squad(REAL))
    contexts = list({question.context for question in questions})
    letters = train_pieces(tmp_path / "letters", contexts, model_type="char", vocab_size=1500)
    words = train_pieces(tmp_path / "words", contexts[:300], vocab_size=2000)
    for model, most in ((letters, 0.0), (words, 0.03)):
        cut, other, number = sentencepiece_cut(model), 0, 0
        places = {context: cut(context).places for context in contexts}
        assert all(
            [end for _, end in held] == sorted(end for _, end in held) for held in places.values()
        )
        for question in questions:
            for extent in dict.fromkeys(squad_passage(question).answers):
                held = places[question.context]
                found = cover(held, extent)
                assert found is not None
                begin, end = held[found[0]][0], held[found[1]][1]
                assert begin <= extent[0] and extent[1] <= end
                other += (begin, end) != extent
                number += 1
        assert number == 18_216 and other <= most * number


# Passages.


def asked(*spans: tuple[str, int]) -> SquadQuestion:
    return SquadQuestion("q", "What?", tuple(Span(*span) for span in spans), "A red  cat.", "Cats")


def test_squads_passage_is_its_context() -> None:
    found = squad_passage(asked(("red  cat", 2), ("cat", 7), ("", 0)))
    assert (found.text, found.answers) == ("A red  cat.", ((2, 10), (7, 10)))
    for span, reason in (
        (("cat", 2), "'q', answer 1: its text is 'cat', but at answer_start 2 the context has 're"),
        (("cat", 9), "answer 1: its 3 characters from answer_start 9 exceed the context"),
        (("cat", -1), "from answer_start -1 exceed the context, which has 11"),
    ):
        with pytest.raises(MemAttnError, match=reason.replace("(", "\\(")):
            squad_passage(asked(span))


def hotpot(
    answer: str | None = "cat", facts: Any = (("T2", 1), ("T7", 0)), size: int = 10, **changes: Any
) -> HotpotQuestion:
    paragraphs = [
        Paragraph(f"T{number}", (f"The cat is {number}.", " It\nis a cat, and scat. ", ""))
        for number in range(size)
    ]
    values = {"paragraphs": tuple(paragraphs), "question": "Who is it?"} | changes
    return HotpotQuestion(
        id="h", answer=answer, type="bridge", level="hard", supporting_facts=facts, **values
    )


def test_hotpots_passage() -> None:
    found = hotpot_passage(hotpot(size=2, facts=(("T1", 1),)))
    assert found.text == (
        "<a> yes no </a> T0 The cat is 0. It\nis a cat, and scat. <a> yes no </a> T1 The cat is 1. "
        "It\nis a cat, and scat. "
    )
    cut = [found.text[slice(*sentence.place)] for sentence in found.sentences]
    assert cut[3:] == ["The cat is 1.", "It\nis a cat, and scat.", ""]
    [(begin, end)] = found.answers
    assert found.text[begin:end] == "cat" and found.text[:begin].endswith(
        "T1 The cat is 1. It\nis a "
    )
    repeated = hotpot_passage(hotpot(size=2, facts=()), repeat_question=True)
    assert repeated.text.count("scat. Who is it?") == 2
    for answer, cut in (
        ("yes", ["yes"]),
        ("no", ["no"]),
        (" It\nis ", ["It\nis"]),
        ("ca", []),
        ("Who", []),
        ("a", ["a"]),
        ("", []),
        (None, []),
    ):
        repeated = hotpot_passage(hotpot(answer), repeat_question=True)
        assert [repeated.text[slice(*place)] for place in repeated.answers] == cut
        if answer in ("yes", "no"):
            assert repeated.text[: repeated.answers[0][0]].count("</a>") == 2


def test_gold_paragraphs_are_separated() -> None:
    seen = set()
    for seed in range(200):
        found = hotpot_passage(hotpot(), gold_separated=True, seed=seed)
        order = list(dict.fromkeys(sentence.title for sentence in found.sentences))
        places = [order.index(title) for title in ("T2", "T7")]
        assert min(places) < 3 and max(places) >= 7
        assert [t for t in order if t not in ("T2", "T7")] == [
            f"T{i}" for i in range(10) if i not in (2, 7)
        ]
        seen.add(tuple(places))
    assert len(seen) == 18
    again = hotpot_passage(hotpot(), gold_separated=True, seed=199)
    assert again == found
    for size in (2, 3, 5):
        few = hotpot(facts=(("T0", 0), ("T1", 0)), size=size)
        assert len(hotpot_passage(few, gold_separated=True).sentences) == 3 * size
    with pytest.raises(
        MemAttnError, match="'h': --gold-separated needs 2 paragraphs with .* has 1"
    ):
        hotpot_passage(hotpot(facts=(("T0", 0),)), gold_separated=True)


# From JSON to data.


def numbers(folder: Path, name: str, split: str, expected: int) -> list[int]:
    return read_numbers(folder / "bin", name, split, expected).tolist()


@pytest.mark.usefixtures("no_binarising")
def test_squad_to_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = CONTEXT.index("about a")
    answer = {"text": "about a ", "answer_start": place}
    train = [[squad_question(f"t{number}", answers=[answer]) for number in range(30)]]
    train[0] += [squad_question("e", answers=[{"text": "", "answer_start": 3}])]
    valid = [[squad_question("v", answers=[answer, {"text": "ag", "answer_start": 3}])]]
    files = {
        "train": write_json(tmp_path / "a.json", squad_file(train)),
        "valid": write_json(tmp_path / "b.json", squad_file(valid)),
        "test": write_json(tmp_path / "c.json", squad_file([[squad_question("x", answers=...)]])),
    }
    out = tmp_path / "out"
    assert run(squad, out, "--vocab-size 33", **files) == 0
    told = capsys.readouterr().out
    assert "text-train: 30 questions, 1 without an answer in the context, left out" in told
    assert "text-test: 1 questions, 1 without a public answer" in told
    [record] = read_span_records(out / "bin/records/valid.jsonl")
    assert (record.id, record.context, record.places) == (
        "v",
        CONTEXT,
        ((place, place + 8), (3, 5)),
    )
    assert [one.id for one in qa_pipeline.READERS["squad"](files["valid"])] == [record.id]
    pieces = lines(out / "pieces/valid.context")[0].split()
    places = np.reshape(numbers(out, "places", "valid", 2 * len(pieces)), (-1, 2))
    first, last = numbers(out, "answers", "valid", 2)
    assert CONTEXT[places[first, 0] : places[last, 1]] == "about a"
    assert numbers(out, "answers", "test", 2) == [-2, -2]
    assert numbers(out, "tags", "valid", len(pieces)) == [0] * len(pieces)
    assert "".join(pieces).replace("\u2581", " ").split() == CONTEXT.split()
    with pytest.raises(ValueError, match="must have 4 numbers to fit the texts, but has 2"):
        read_numbers(out / "bin", "answers", "test", 4)


@pytest.mark.usefixtures("no_binarising")
def test_squad_in_berts_pieces(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tokenizers", reason="BERT's pieces")
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"par ##agraph is about cat 0 .".split()]
    (tmp_path / "vocab.txt").write_text("".join(f"{name}\n" for name in names))
    (tmp_path / "dict.txt").write_text("".join(f"{name} 1\n" for name in names[5:]))
    place = CONTEXT.index("cat")
    answer = {"text": "cat", "answer_start": place}
    train = write_json(tmp_path / "a.json", squad_file([[squad_question("q", answers=[answer])]]))
    files = f"--bert-vocab {tmp_path / 'vocab.txt'} --dictionary {tmp_path / 'dict.txt'}"
    out = tmp_path / "out"
    assert run(squad, out, files, train=train) == 0
    assert "4 pieces not in the dictionary (<unk>)" in capsys.readouterr().out
    assert lines(out / "pieces/train.context") == ["par ##agraph 0 is about <unk> cat ."]
    assert numbers(out, "answers", "train", 2) == [6, 6]
    assert numbers(out, "places", "train", 16)[12:14] == [place, place + 3]
    assert not (out / "spm.model").exists()


@pytest.mark.usefixtures("no_binarising")
def test_hotpotqa_to_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train = [hotpot_record(number) for number in range(30)]
    train += [hotpot_record(31, answer="Nowhere")]
    valid = [hotpot_record(40), hotpot_record(41, answer="Nowhere"), hotpot_record(42, answer="no")]
    files = {
        "train": write_json(tmp_path / "a.json", train),
        "valid": write_json(tmp_path / "b.json", valid),
    }
    one, two = tmp_path / "one", tmp_path / "two"
    assert run(hotpotqa, one, "--vocab-size 60 --repeat-question", **files) == 0
    told = capsys.readouterr().out
    assert "1 without an answer in the context, left out" in told
    facts = "3 supporting facts that the context lacks"
    assert f"text-valid: 3 questions, {facts}, 1 without an answer in the context, kept" in told
    assert "pieces-valid: 3 questions" in told and "1 without an answer in the pieces" in told
    assert run(hotpotqa, two, "--vocab-size 60 --repeat-question --workers 2", **files) == 0
    for path in (one / "bin").rglob("*"):
        if path.is_file() and path.suffix not in (".json", ".log"):
            assert path.read_bytes() == (two / path.relative_to(one)).read_bytes()
    records = list(read_span_records(one / "bin/records/valid.jsonl"))
    rows = [line.split() for line in lines(one / "pieces/valid.context")]
    sizes = [len(row) for row in rows]
    places = np.reshape(numbers(one, "places", "valid", 2 * sum(sizes)), (-1, 2))
    tags = np.array(numbers(one, "tags", "valid", sum(sizes)), dtype=bool)
    answers = np.reshape(numbers(one, "answers", "valid", 6), (-1, 2))
    assert answers[1].tolist() == [-1, -1]
    begin = 0
    for record, size, (first, last) in zip(records, sizes, answers, strict=True):
        held, marked = places[begin : begin + size], tags[begin : begin + size]
        begin += size
        text = record.context
        if first >= 0:
            assert text[held[first, 0] : held[last, 1]] == record.answers[0]
        assert text.count(record.question) == 3
        fact = record.sentences[2]
        assert record.supports(fact) and record.facts == {(fact.title, 0), ("Elsewhere", 7)}
        inside = (held[:, 0] < fact.end) & (held[:, 1] > fact.begin)
        assert np.array_equal(marked, inside)


def test_other_records_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"rules": "squad", "id": "a", "answers": []}))
    with pytest.raises(ValueError, match="a.jsonl, line 1: not a record of a question for"):
        list(read_span_records(tmp_path / "a.jsonl"))
