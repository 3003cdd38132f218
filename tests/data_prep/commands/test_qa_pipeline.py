"""HotpotQA and SQuAD from their JSON to data, and what is refused on the way."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from official_archives import lines, message
from preparing import prepare
from question_files import hotpot_context, hotpot_record, squad_file, squad_question, write_json

from fairseq_memattn.data_prep.commands import hotpotqa, squad
from fairseq_memattn.data_prep.pipeline import questions as qa_pipeline
from fairseq_memattn.qa.question_sets import Span, read_hotpotqa, read_squad

PIECES = "--vocab-size 60"


def run(script: Any, output: Path, options: str = PIECES, **files: Path) -> int:
    given = [f"{split}={path}" for split, path in files.items()]
    return prepare(script, ["--output", str(output), *options.split(), "--files", *given])


def records(folder: Path, split: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines(folder / f"bin/records/{split}.jsonl")]


def test_hotpotqa_to_binary_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train = [hotpot_record(number) for number in range(30)]
    train += [hotpot_record(30, answer=" "), hotpot_record(31, question="")]
    valid = [hotpot_record(40), hotpot_record(41, answer=""), hotpot_record(42, context=[])]
    hidden = {key: ... for key in ("answer", "type", "level", "supporting_facts")}
    files = {
        "train": write_json(tmp_path / "a.json", train),
        "valid": write_json(tmp_path / "b.json", valid),
        "test": write_json(tmp_path / "c.json", [hotpot_record(50, **hidden)]),
    }
    out = tmp_path / "out"
    assert run(hotpotqa, out, **files) == 0
    printed = capsys.readouterr().out
    for told in (
        "text-train: 30 questions, 1 without an answer, left out, 1 without a question, left out",
        "text-valid: 3 questions, 1 without an answer, kept, 1 without a context, kept",
        "text-test: 1 questions, 1 without a public answer",
    ):
        assert told in printed
    assert lines(out / "text/train.context") == [hotpot_context(number) for number in range(30)]
    assert lines(out / "text/train.answer") == [record["answer"] for record in train[:30]]
    assert lines(out / "text/valid.context") == [hotpot_context(40), hotpot_context(41), ""]
    assert records(out, "valid") == [
        {"rules": "hotpotqa", "id": record["_id"], "answers": [record["answer"]]}
        for record in valid
    ]
    assert records(out, "test") == [{"rules": "hotpotqa", "id": "h50", "answers": []}]
    processor = sentencepiece.SentencePieceProcessor(model_file=str(out / "spm.model"))
    for part in ("question", "context", "answer"):
        made = lines(out / f"pieces/train.{part}")
        assert [processor.decode(line.split()) for line in made] == lines(
            out / f"text/train.{part}"
        )
        assert (out / f"bin/{part}/train.bin").exists()
        # Nothing that the model can say is unknown, whatever the training text holds.
        pieces = {processor.id_to_piece(number) for number in range(3, 60)}
        assert {line.split()[0] for line in lines(out / f"bin/{part}/dict.txt")} == pieces
    assert (out / "bin/context/test.bin").exists()
    assert not (out / "bin/answer/test.bin").exists()
    assert run(hotpotqa, out, **files) == 0
    assert "was ready" in capsys.readouterr().out
    assert run(hotpotqa, out, f"{PIECES} --titles", **files) == 1
    assert "was made from other input or options" in message(capsys.readouterr().err)


@pytest.mark.usefixtures("no_binarising")
def test_squad_and_a_pretrained_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    groups = [[squad_question("q1", "one  way", "two"), squad_question("q2", "x")]]
    groups += [[squad_question(f"p{number}", "a cat")] for number in range(20)]
    train = write_json(tmp_path / "train.json", squad_file(groups))
    assert run(squad, tmp_path / "first", "--vocab-size 40", train=train) == 0
    assert lines(tmp_path / "first/text/train.answer")[:3] == ["one way", "x", "a cat"]
    assert records(tmp_path / "first", "train")[0]["answers"] == ["one  way", "two"]
    contexts = lines(tmp_path / "first/text/train.context")
    assert contexts[1:3] == ["Paragraph 0 is about a cat.", "Paragraph 1 is about a cat."]
    sample = lines(tmp_path / "first/text/train.sample")
    assert len(sample) == len(set(sample)) == 22 + 21 + 3

    model = tmp_path / "first/spm.model"
    assert run(squad, tmp_path / "second", f"--sentencepiece-model {model}", valid=train) == 0
    for name in ("pieces/valid.question", "pieces.txt"):
        other = name.replace("valid", "train")
        assert lines(tmp_path / "second" / name) == lines(tmp_path / "first" / other)

    (tmp_path / "dict.txt").write_text("a 3\n")
    options = f"--sentencepiece-model {model} --dictionary {tmp_path / 'dict.txt'}"
    assert run(squad, tmp_path / "third", options, valid=train) == 0
    assert "not in the dictionary (<unk>)" in capsys.readouterr().out


@pytest.mark.usefixtures("no_binarising")
def test_titles_come_before_their_paragraphs(tmp_path: Path) -> None:
    file = write_json(tmp_path / "a.json", [hotpot_record(number) for number in range(30)])
    assert run(hotpotqa, tmp_path / "out", f"{PIECES} --titles", train=file) == 0
    assert lines(tmp_path / "out/text/train.context")[0] == (
        "Farm 0 The farm 0 is old. Nobody lives there. The cat The cat is red. It runs. Empty"
    )


def test_records_are_read_whole(tmp_path: Path) -> None:
    [found] = read_hotpotqa(write_json(tmp_path / "h.json", [hotpot_record(1)]))
    assert (found.type, found.level) == ("bridge", "hard")
    assert found.supporting_facts == (("The dog", 0), ("Elsewhere", 7))
    assert [paragraph.title for paragraph in found.paragraphs] == ["Farm 1", "The dog", "Empty"]
    assert found.paragraphs[1].sentences == ("The dog is red.", " It\nruns.", "")
    content = squad_file([[squad_question("q", "x", "y")], [squad_question("r", answers=...)]])
    first, second = read_squad(write_json(tmp_path / "s.json", content))
    assert first.spans == (Span("x", 3), Span("y", 3))
    assert (second.title, second.answers) == ("Cats", ())
    assert second.context == "Paragraph  1\nis about a cat."


FACT = [["A", "0"]]
NO_PLACE = [squad_question("q1", answers=[{"text": "x"}])]
ODD_PLACE = [squad_question("q1", answers=[{"text": "x", "answer_start": True}])]
SECOND = [[squad_question("q1", "x")], [squad_question("q2", "x", question=...)]]
MISTAKES = [
    ("hotpotqa", [hotpot_record(1), hotpot_record(2, context=...)], "record 2 (_id 'h2'): has no"),
    ("hotpotqa", [hotpot_record(1, context=[["A", "b"]])], "paragraph 1 of the context must be [t"),
    ("hotpotqa", [hotpot_record(1, supporting_facts=FACT)], "fact must be [title, number], but is"),
    ("hotpotqa", [hotpot_record(1), hotpot_record(1)], "has the same id as record 1 (_id 'h1')"),
    ("squad", squad_file(SECOND), "paragraph 2, question 1 (id 'q2'): has no key 'question'"),
    ("squad", squad_file([NO_PLACE]), "(id 'q1'), answer 1: has no key 'answer_start'"),
    ("squad", squad_file([ODD_PLACE]), "'answer_start' must be a whole number, but is True"),
]


def test_mistakes_name_the_record(tmp_path: Path) -> None:
    for rules, content, expected in MISTAKES:
        file = write_json(tmp_path / "a.json", content)
        with pytest.raises(ValueError, match=re.escape(expected)):
            list(qa_pipeline.READERS[rules](file))


@pytest.mark.usefixtures("no_binarising")
@pytest.mark.parametrize("spans", ["", "--spans"])
@pytest.mark.parametrize(
    ("train", "valid", "expected"),
    [
        ([hotpot_record(1)], "[]", "valid.json: no questions for valid"),
        ([hotpot_record(1)], json.dumps([hotpot_record(1, question="\ud800?")]), "U+D800"),
        ([hotpot_record(1, answer=...)], "[]", "'h1' has no answer, but train needs one"),
    ],
)
def test_a_mistake_in_any_split_leaves_nothing(train, valid, expected, spans, tmp_path, capsys):
    files = {"train": write_json(tmp_path / "train.json", train), "valid": tmp_path / "valid.json"}
    files["valid"].write_text(valid)
    assert run(hotpotqa, tmp_path / "out", spans, **files) == 1
    assert expected in message(capsys.readouterr().err)
    assert not (tmp_path / "out").exists()


def test_answers_are_public_for_all_questions_or_none(tmp_path, capsys):
    content = [hotpot_record(1, answer=...), hotpot_record(2)]
    file = write_json(tmp_path / "a.json", content)
    train = write_json(tmp_path / "train.json", [hotpot_record(1)])
    assert run(hotpotqa, tmp_path / "out", train=train, test=file) == 1
    assert "the question 'h2' has an answer, unlike the questions before" in capsys.readouterr().err


def test_official_files_are_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = squad_file([[squad_question("q", "x")]])
    archives = [
        str(write_json(tmp_path / archive.name, content)) for archive in squad.ARCHIVES.values()
    ]
    argv = ["--output", str(tmp_path / "out"), "--archive", *archives]
    assert prepare(squad, argv) == 1
    assert "but the official train-v1.1.json has 30288272" in message(capsys.readouterr().err)
