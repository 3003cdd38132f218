"""What would shift lines is refused: by fairseq-preprocess before it writes, by -interactive."""

import pytest
from harness import PLUGGED, PLUGIN, attempt, hypotheses, run

from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.host.correctness.text import check_text


@pytest.fixture
def text(tmp_path):
    for name, lines in (("train.x", "a b\nb\n"), ("train.y", "c\nd d\n"), ("valid.x", "a\n")):
        (tmp_path / name).write_text(lines, encoding="utf-8")
    (tmp_path / "valid.y").write_text("c\n", encoding="utf-8")
    return tmp_path


def preprocess(text, attempt):
    prefixes = [f"--{split}pref={text / split}" for split in ("train", "valid")]
    flags = ["--user-dir", PLUGIN, "-s", "x", "-t", "y", "--destdir", text / "bin"]
    return attempt("fairseq-preprocess", *prefixes, *flags)


def test_preprocessing(text):
    (text / "train.y").write_text("c\n", encoding="utf-8")
    done = preprocess(text, attempt)
    words = "must have the same number of lines, but have 2 and 1"
    said = f"fairseq-preprocess: error: {text}/train.x and {text}/train.y {words}"
    assert done.stderr.splitlines()[-1] == said
    assert not (text / "bin").exists()
    (text / "train.y").write_text("c\nd\n", encoding="utf-8")
    preprocess(text, run)
    assert (text / "bin" / "train.x-y.y.idx").exists()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("ab café\n".encode("latin-1"), "line 1: not UTF-8 at byte 7 of the line"),
        (b"a b\r\nb\rc\r\n", "line 2: a carriage return inside the line"),
        (b"\xef\xbb\xbfa\n", "line 1: begins with a byte-order mark"),
    ],
)
def test_lines(content, words, tmp_path):
    (tmp_path / "train.x").write_bytes(content)
    with pytest.raises(MemAttnError, match=words):
        check_text([str(tmp_path / "train.x")])


@pytest.mark.parametrize("given", ["file", "standard input"])
def test_interactive_lines(given, translator, tmp_path):
    """The end of a line may have a carriage return, but no line may have one inside."""
    path = tmp_path / "text"
    flags = ["--path", translator.checkpoint]
    flags += ["--input", path] if given == "file" else []
    for text, lines in (("a b\r\n\nb\r\n", [0, 1, 2]), ("b\na\rb\n", [0])):
        path.write_bytes(text.encode())
        stdin = None if given == "file" else text
        done = attempt("fairseq-interactive", translator.data, *PLUGGED, *flags, stdin=stdin)
        assert list(hypotheses(done.stdout)) == lines
        assert (done.returncode == 1) == (len(lines) == 1)
    name = path if given == "file" else given
    words = f"{name}, line 2: a carriage return inside the line"
    assert done.stderr.splitlines()[-1] == f"fairseq-interactive: error: {words}"
