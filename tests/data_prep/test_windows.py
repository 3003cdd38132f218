"""Windows: the paper's document setting, its inverse, and every way the input can be wrong."""

from pathlib import Path

import pytest
from preparing import prepare

from fairseq_memattn.data_prep.text import windows
from fairseq_memattn.data_prep.text.windows import count_separators, join_window, last_sentence


def write(folder: Path, **files: str | bytes) -> str:
    """Files `corpus.<suffix>`; returns their prefix."""
    for suffix, text in files.items():
        data = text if isinstance(text, bytes) else text.encode("utf-8")
        (folder / f"corpus.{suffix}").write_bytes(data)
    return str(folder / "corpus")


def make(prefix: str, *options: str) -> int:
    """`windows.py make` on en and ru, in this process."""
    output = str(Path(prefix).parent / "out" / "w")
    return prepare(
        windows, ["make", "--input", prefix, "--langs", "en", "ru", "--output", output, *options]
    )


def refused(folder: Path, prefix: str, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    """The message of a run that fails without writing anything."""
    before = sorted(folder.rglob("*"))
    assert make(prefix, *options) == 1
    assert sorted(folder.rglob("*")) == before
    captured = capsys.readouterr()
    assert captured.out == ""
    line = captured.err.strip().splitlines()[-1]
    assert line.startswith("memattn prepare: error: ")
    return line.removeprefix("memattn prepare: error: ")


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
    assert (tmp_path / "new" / "w.ru").read_text(encoding="utf-8").splitlines()[4:] == [
        "Б _eos В _eos Г _eos Д",
        "Е",
    ]
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["w.en", "w.ru"]

    argv = ["last", "--input", f"{output}.ru", "--source", f"{output}.en"]
    assert prepare(windows, [*argv, "--output", str(tmp_path / "back.ru")]) == 0
    assert capsys.readouterr().err == ""
    assert (tmp_path / "back.ru").read_bytes() == (tmp_path / "corpus.ru").read_bytes()


def test_one_language_other_sizes_and_another_separator(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prefix = write(tmp_path, en="a\nb\nc", docid="1\n1\n1")
    options = ["--input", prefix, "--langs", "en", "--output", str(tmp_path / "w")]
    assert prepare(windows, ["make", *options, "--sentences", "2", "--separator", "<sep>"]) == 0
    assert (tmp_path / "w.en").read_text(encoding="utf-8") == "a\na <sep> b\nb <sep> c\n"
    assert prepare(windows, ["make", *options, "--sentences", "1"]) == 1
    assert "w.en exists; choose another --output" in capsys.readouterr().err
    assert prepare(windows, ["make", *options, "--sentences", "1", "--force"]) == 0
    assert (tmp_path / "w.en").read_text(encoding="utf-8") == "a\nb\nc\n"


def test_windows_line_ends_and_unicode_line_separators_are_text(tmp_path: Path) -> None:
    prefix = write(tmp_path, en="a\u2028b\r\nc\x85d\r\n", ru="А\nБ\n", docid="1\r\n1\r\n")
    assert make(prefix) == 0
    written = (tmp_path / "out" / "w.en").read_bytes().decode("utf-8")
    assert written == "a\u2028b\na\u2028b _eos c\x85d\n"


def test_a_missing_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prefix = write(tmp_path, en="a\n", docid="1\n")
    assert f"No such file or directory: '{prefix}.ru'" in refused(tmp_path, prefix, capsys)


@pytest.mark.parametrize(
    ("files", "counts"),
    [
        ({"en": "a\nb\nc\n", "ru": "А\nБ\n", "docid": "1\n1\n1\n"}, (3, 2, 3)),
        ({"en": "a\nb\n", "ru": "А\nБ\n", "docid": "1\n1\n1\n1\n"}, (2, 2, 4)),
        ({"en": "", "ru": "", "docid": "1\n"}, (0, 0, 1)),
    ],
)
def test_line_counts_that_differ(
    files: dict[str, str],
    counts: tuple[int, ...],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    prefix = write(tmp_path, **files)
    en, ru, docid = counts
    assert refused(tmp_path, prefix, capsys) == (
        "the files must have the same number of lines: "
        f"{prefix}.en has {en}, {prefix}.ru has {ru}, {prefix}.docid has {docid}"
    )


def test_a_document_that_reappears(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prefix = write(tmp_path, en="a\nb\nc\nd\n", ru="А\nБ\nВ\nГ\n", docid="one\ntwo\ntwo\none\n")
    assert refused(tmp_path, prefix, capsys) == (
        f"{prefix}.docid, line 4: document id 'one' began at line 1 and had already ended; "
        "a document must be contiguous"
    )


@pytest.mark.parametrize("suffix", ["en", "ru", "docid"])
@pytest.mark.parametrize("empty", ["", "  \t"])
def test_an_empty_line(
    suffix: str, empty: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {"en": "a\nb\nc\n", "ru": "А\nБ\nВ\n", "docid": "1\n1\n1\n"}
    lines = files[suffix].splitlines()
    lines[1] = empty
    prefix = write(tmp_path, **{**files, suffix: "\n".join(lines) + "\n"})
    assert refused(tmp_path, prefix, capsys) == f"{prefix}.{suffix}, line 2: the line is empty"


def test_bytes_that_are_not_utf8(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prefix = write(tmp_path, en="a\nb\n", ru="А\n".encode() + b"\xd0\x91 \xff\n", docid="1\n1\n")
    assert refused(tmp_path, prefix, capsys) == (
        f"{prefix}.ru, line 2: not UTF-8 at byte 4 of the line (0xff)"
    )


def test_a_carriage_return_inside_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prefix = write(tmp_path, en="a\rb\n", ru="А\n", docid="1\n")
    assert refused(tmp_path, prefix, capsys) == (
        f"{prefix}.en, line 1: a carriage return inside the line"
    )


def test_the_separator_in_the_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prefix = write(tmp_path, en="a\nb\n", ru="А\nБ _eos В\n", docid="1\n1\n")
    assert refused(tmp_path, prefix, capsys) == (
        f"{prefix}.ru, line 2: the text already contains the separator '_eos'; "
        "choose another with --separator"
    )
    assert make(prefix, "--separator", "<sep>") == 0


def test_the_input_is_never_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prefix = write(tmp_path, en="a\nb\n", docid="1\n1\n")
    options = ["--input", prefix, "--langs", "en", "--output", str(tmp_path / "." / "corpus")]
    assert prepare(windows, ["make", *options]) == 1
    assert "the output would overwrite an input" in capsys.readouterr().err
    assert (tmp_path / "corpus.en").read_text(encoding="utf-8") == "a\nb\n"


def test_a_language_named_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prefix = write(tmp_path, en="a\n", docid="1\n")
    arguments = ["make", "--input", prefix, "--langs", "en", "en", "--output", f"{prefix}.w"]
    assert prepare(windows, arguments) == 1
    assert "--langs must name each language once, but is en en" in capsys.readouterr().err


def test_a_failure_leaves_earlier_output_alone(tmp_path: Path) -> None:
    prefix = write(tmp_path, en="a\nb\n", ru="А\nБ\n", docid="1\n1\n")
    assert make(prefix) == 0
    before = (tmp_path / "out" / "w.en").read_text(encoding="utf-8")
    write(tmp_path, en="changed\n\n")
    assert make(prefix) == 1
    assert (tmp_path / "out" / "w.en").read_text(encoding="utf-8") == before
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["w.en", "w.ru"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--sentences", "0"], "must be an integer of at least 1, but is '0'"),
        (["--separator", "a b"], "must be one token without spaces, but is 'a b'"),
        (["--separator", ""], "must be one token without spaces, but is ''"),
    ],
)
def test_impossible_options(
    options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prefix = write(tmp_path, en="a\n", ru="А\n", docid="1\n")
    with pytest.raises(SystemExit) as stopped:
        make(prefix, *options)
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


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


def test_hypotheses_with_another_number_of_separators_are_kept_and_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "source").write_text("a\na _eos b\na _eos b _eos c\n", encoding="utf-8")
    (tmp_path / "hypotheses").write_text("А\nБ\nА _eos Б _eos В _eos Г\n", encoding="utf-8")
    assert (
        prepare(
            windows,
            [
                "last",
                "--input",
                str(tmp_path / "hypotheses"),
                "--source",
                str(tmp_path / "source"),
                "--output",
                str(tmp_path / "last"),
            ],
        )
        == 0
    )
    assert (tmp_path / "last").read_text(encoding="utf-8") == "А\nБ\nГ\n"
    error = capsys.readouterr().err
    assert "warning: in 2 lines of" in error and "first in line 2" in error


def test_hypotheses_that_are_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "source").write_text("a\nb\n", encoding="utf-8")
    (tmp_path / "hypotheses").write_text("А\n", encoding="utf-8")
    assert (
        prepare(
            windows,
            [
                "last",
                "--input",
                str(tmp_path / "hypotheses"),
                "--source",
                str(tmp_path / "source"),
                "--output",
                str(tmp_path / "last"),
            ],
        )
        == 1
    )
    assert "hypotheses has 1" in capsys.readouterr().err
    assert not (tmp_path / "last").exists()


def test_files_without_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prefix = write(tmp_path, en="", ru="", docid="")
    assert refused(tmp_path, prefix, capsys) == f"{prefix}.en: no lines"
