"""Windows: the paper's document setting, its inverse, and wrong input."""

from pathlib import Path

import pytest
from preparing import prepare

from fairseq_memattn.data_prep.commands.windows import last, make
from fairseq_memattn.data_prep.text import windows
from fairseq_memattn.data_prep.text.windows import count_separators, join_window, last_sentence
from fairseq_memattn.errors import MemAttnError


def write(folder: Path, **files: str) -> str:
    """Files `corpus.<suffix>`; returns their prefix."""
    for suffix, text in files.items():
        (folder / f"corpus.{suffix}").write_bytes(text.encode("utf-8"))
    return str(folder / "corpus")


def test_the_command_line_end_to_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prefix = write(
        tmp_path, en="a\nb\nc\nd\ne\nf\n", ru="А\nБ\nВ\nГ\nД\nЕ\n", docid="1\n1\n1\n1\n1\nx y\n"
    )
    output = tmp_path / "new" / "w"
    argv = ["make", "--input", prefix, "--langs", "en", "ru", "--output", str(output)]
    assert prepare(windows, argv) == 0
    assert capsys.readouterr().out.startswith("6 windows")
    assert (tmp_path / "new" / "w.en").read_text(encoding="utf-8").splitlines() == [
        "a",
        "a _eos b",
        "a _eos b _eos c",
        "a _eos b _eos c _eos d",
        "b _eos c _eos d _eos e",
        "f",
    ]
    argv = ["last", "--input", f"{output}.ru", "--source", f"{output}.en"]
    assert prepare(windows, [*argv, "--output", str(tmp_path / "back.ru")]) == 0
    assert capsys.readouterr().err == ""
    assert (tmp_path / "back.ru").read_bytes() == (tmp_path / "corpus.ru").read_bytes()


def test_one_language_other_sizes_and_another_separator(tmp_path: Path) -> None:
    prefix = write(tmp_path, en="a\u2028\r\nb\x85\nc", docid="1\n1\n1")
    assert make(prefix, ["en"], str(tmp_path / "w"), 2, "<sep>") == 3
    expected = "a\u2028\na\u2028 <sep> b\x85\nb\x85 <sep> c\n"
    assert (tmp_path / "w.en").read_bytes().decode("utf-8") == expected
    with pytest.raises(MemAttnError, match="w.en exists; choose another --output"):
        make(prefix, ["en"], str(tmp_path / "w"), 1, "<sep>")
    assert make(prefix, ["en"], str(tmp_path / "w"), 1, "<sep>", force=True) == 3


@pytest.mark.parametrize(
    ("files", "output", "message"),
    [
        ({"ru": "А\nБ _eos В\n"}, "w", "ru, line 2: the text already contains the separator"),
        ({"en": "", "ru": "", "docid": ""}, "w", "en: no lines"),
        ({}, "./corpus", "the output would overwrite an input"),
    ],
)
def test_wrong_input(files: dict[str, str], output: str, message: str, tmp_path: Path) -> None:
    prefix = write(tmp_path, **{"en": "a\nb\n", "ru": "А\nБ\n", "docid": "1\n1\n"} | files)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(MemAttnError, match=message):
        make(prefix, ["en", "ru"], str(tmp_path / output), 4, "_eos", force=True)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    ("line", "sentence", "separators"),
    [
        ("a b _eos c d", "c d", 1),
        ("one sentence", "one sentence", 0),
        ("a _eos b _eos", "", 2),
        ("_eos a", "a", 1),
        ("a_eos b", "a_eos b", 0),
        ("", "", 0),
    ],
)
def test_last_sentence(line: str, sentence: str, separators: int) -> None:
    assert last_sentence(line) == sentence
    assert count_separators(line) == separators


def test_last_sentence_undoes_join_window() -> None:
    for separator in ("_eos", "<sep>"):
        sentences = ["a  b", "c", "d e"]
        assert last_sentence(join_window(sentences, separator), separator) == "d e"


def test_hypotheses_with_another_number_of_separators(tmp_path: Path) -> None:
    source, hypotheses, output = (tmp_path / name for name in ("source", "hypotheses", "last"))
    source.write_text("a\na _eos b\na _eos b _eos c\n", encoding="utf-8")
    hypotheses.write_text("А\nБ\nА _eos Б _eos В _eos Г\n", encoding="utf-8")
    assert last(hypotheses, source, output, "_eos") == [2, 3]
    assert output.read_text(encoding="utf-8") == "А\nБ\nГ\n"
    source.write_text("a\nb\n", encoding="utf-8")
    with pytest.raises(MemAttnError, match="hypotheses has 3"):
        last(hypotheses, source, output, "_eos", force=True)
