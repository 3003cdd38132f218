"""SentencePiece segmentation through the command line."""

from itertools import product
from pathlib import Path

import pytest
import sentencepiece
from preparing import prepare

from fairseq_memattn.data_prep.text import subword

SIZES, THINGS, PLACES = ("old", "new", "big"), ("house", "garden", "letter"), ("town", "valley")
TEXT = [f"The {a} {b} is in the {c}." for a, b, c in product(SIZES, THINGS, PLACES)]


def run(*args: object) -> int:
    return prepare(subword, [*map(str, args)])


@pytest.fixture(scope="module")
def text(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("text") / "train.en"
    windows = [f"{a} _eos {b}" for a, b in zip(TEXT, TEXT[1:], strict=False)]
    path.write_text("\n".join(windows) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def model(text) -> Path:
    assert run("train", "--input", text, "--model", text.parent / "spm", "--vocab-size", 26) == 0
    return text.parent / "spm.model"


def test_encoding_keeps_every_line_and_the_separator_is_one_token(text, model, tmp_path):
    text.with_suffix(".docid").write_text("1\n" * 17)
    assert run("encode", "--model", model, "--input", text, "--output", tmp_path) == 0
    assert (tmp_path / "train.docid").read_text() == "1\n" * 17
    lines = text.read_text(encoding="utf-8").splitlines()
    pieces = (tmp_path / "train.en").read_text(encoding="utf-8").splitlines()
    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    assert [processor.decode(line.split()) for line in pieces] == lines
    assert all(line.split().count("▁_eos") == 1 for line in pieces)


def test_the_separator_is_not_learnt_from(text, model):
    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    pieces = {processor.id_to_piece(index) for index in range(processor.get_piece_size())}
    assert {piece for piece in pieces if "_" in piece} == {"▁_eos"}


def test_a_termination_is_no_error_of_the_text(text, tmp_path, monkeypatch):
    def terminated(path):
        yield TEXT[0]
        raise SystemExit(143)

    monkeypatch.setattr(subword, "read_lines", terminated)
    with pytest.raises(SystemExit, match="143"):
        run("train", "--input", text, "--model", tmp_path / "spm", "--vocab-size", 26)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("train --input TEXT --model spm --vocab-size 9999", "9999 does not fit the text"),
        ("encode --model TEXT --input TEXT --output o", "not a SentencePiece model"),
        ("train --input latin.en --model spm", "latin.en, line 2: not UTF-8"),
        ("train --input TEXT --model spm --seed -1", "--seed must be at least 0"),
    ],
)
def test_mistakes_end_in_one_sentence(text, tmp_path, monkeypatch, capsys, args, message):
    monkeypatch.chdir(tmp_path)
    Path("empty.en").write_text("\n\n", encoding="utf-8")
    Path("latin.en").write_bytes(b"one\n\xe9\n")
    assert run(*(text if arg == "TEXT" else arg for arg in args.split())) == 1
    error = capsys.readouterr().err
    assert message in error.splitlines()[-1]
    assert error.splitlines()[-1].startswith("memattn prepare: error: ")
    assert "Traceback" not in error
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty.en", "latin.en"]


def test_lines_that_are_too_long_to_learn_from(text, tmp_path, capsys):
    path, model = tmp_path / "long.en", tmp_path / "spm"
    path.write_text(text.read_text(encoding="utf-8") + "é b " * 1050 + "\nc\n", encoding="utf-8")
    argv = ["train", "--input", path, "--model", model, "--vocab-size", 26]
    assert run(*argv) == 0
    line = len(TEXT)
    told = f"{path}, line {line}: has 5249 bytes, but SentencePiece learns from lines of at most"
    said = capsys.readouterr().err
    assert f"warning: {told} --max-sentence-length 4192; left out: 1 lines\n" in said
    assert "é" not in model.with_suffix(".vocab").read_text(encoding="utf-8")
    assert run(*argv, "--max-sentence-length", 5249) == 0
    assert "warning" not in capsys.readouterr().err
    assert "é" in model.with_suffix(".vocab").read_text(encoding="utf-8")
    path.write_text("a b " * 5000, encoding="utf-8")
    assert run(*argv) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert (
        said.startswith(f"memattn prepare: error: {path}, line 1: has 19999 bytes")
        and "--max-sent" in said
    )


def test_an_input_is_never_overwritten(text, model, capsys):
    before = text.read_bytes()
    assert run("encode", "--model", model, "--input", text, "--output", text.parent) == 1
    assert "would overwrite an input" in capsys.readouterr().err
    assert text.read_bytes() == before


def test_two_inputs_of_one_name_are_refused(text, model, tmp_path, capsys):
    twin = tmp_path / "train.en"
    twin.write_text("A line.\n", encoding="utf-8")
    assert run("encode", "--model", model, "--input", text, twin, "--output", tmp_path / "o") == 1
    assert "same name" in capsys.readouterr().err
