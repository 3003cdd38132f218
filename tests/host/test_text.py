"""fairseq-preprocess checks its text before it writes, and fairseq-interactive line by line."""

from types import SimpleNamespace

import pytest
from harness import PLUGGED, PLUGIN, attempt, hypotheses, run

from fairseq_memattn.host.correctness.text import warn_of_foreign_lines


@pytest.fixture
def text(tmp_path):
    for name, lines in (("train.x", "a b\nb\n"), ("train.y", "c\nd d\n"), ("valid.x", "a\n")):
        (tmp_path / name).write_text(lines, encoding="utf-8")
    (tmp_path / "valid.y").write_text("c\n", encoding="utf-8")
    return tmp_path


def preprocess(text, *flags, attempt=attempt):
    prefixes = [f"--{split}pref={text / split}" for split in ("train", "valid")]
    flags = ["--user-dir", PLUGIN, "-s", "x", "-t", "y", "--destdir", text / "bin", *flags]
    return attempt("fairseq-preprocess", *prefixes, *flags)


def assert_refused(done, text, words):
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == f"fairseq-preprocess: error: {words}"
    assert not (text / "bin").exists()


def test_right_text(text):
    preprocess(text, attempt=run)
    assert (text / "bin" / "train.x-y.y.idx").exists()
    again = preprocess(text)
    assert again.stderr.endswith("dict.x.txt exists already\n")


def test_a_missing_file(text):
    (text / "valid.y").unlink()
    assert_refused(preprocess(text), text, f"{text}/valid.y does not exist")


def test_other_numbers_of_lines(text):
    (text / "train.y").write_text("c\n", encoding="utf-8")
    words = (
        f"{text}/train.x and {text}/train.y must have the same number of lines, but have 2 and 1"
    )
    assert_refused(preprocess(text), text, words)


def test_text_that_is_not_utf8(text):
    (text / "valid.x").write_bytes("ab café\n".encode("latin-1"))
    words = f"{text}/valid.x, line 1 must be UTF-8, but is not at byte 7 (0xe9)"
    assert_refused(preprocess(text), text, words)


def test_a_line_that_fairseq_splits(text):
    (text / "train.x").write_bytes(b"a b\r\nb\rc\r\n")
    words = (
        f"{text}/train.x, line 2 has a carriage return, which fairseq takes for the end of a line"
    )
    assert_refused(preprocess(text), text, words)


def test_a_byte_order_mark(text):
    (text / "train.x").write_bytes(b"\xef\xbb\xbf" + (text / "train.x").read_bytes())
    words = f"{text}/train.x, line 1 begins with a byte-order mark; save it without"
    assert_refused(preprocess(text), text, words)


def test_no_workers(text):
    assert_refused(preprocess(text, "--workers", 0), text, "--workers must be at least 1, but is 0")


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
    name = f"--input {path}" if given == "file" else "standard input"
    words = "line 2 has a carriage return, which fairseq takes for the end of a line"
    assert done.stderr.splitlines()[-1] == f"fairseq-interactive: error: {name}, {words}"
    path.write_text(text := "\ufeffa b\n", encoding="utf-8")
    stdin = None if given == "file" else text
    done = attempt("fairseq-interactive", translator.data, *PLUGGED, *flags, stdin=stdin)
    words = "line 1 begins with a byte-order mark; save it without"
    assert done.stderr.splitlines()[-1] == f"fairseq-interactive: error: {name}, {words}"


@pytest.mark.parametrize(
    ("symbols", "lines", "foreign"),
    [
        ("a b", "a b\na x x\nb x\na b x\n\n", "2 of 5"),
        ("\u2581a b", "\u2581a b\nb b\n\u2581a\n", "1 of 3"),
        ("\u2581 \u2581a", "\u2581 \u8bd7\n\u2581a\n", "1 of 2"),
        ("\u2581a b", "\u2581a b\n\u2581a\n", None),
    ],
)
def test_lines_that_are_not_in_the_pieces_of_the_model(symbols, lines, foreign, capsys):
    from fairseq.data import Dictionary

    dictionary = Dictionary()
    for symbol in symbols.split():
        dictionary.add_symbol(symbol)

    def make_batches(lines, cfg, task):
        tokens = [dictionary.encode_line(line, add_if_not_exist=False) for line in lines]
        yield SimpleNamespace(src_tokens=tokens)

    def main(cfg):
        list(command.make_batches(lines.split("\n")[:-1], cfg, task))

    task = SimpleNamespace(source_dictionary=dictionary)
    command = SimpleNamespace(main=main, make_batches=make_batches)
    warn_of_foreign_lines(command)(None)
    words = f"{foreign} lines are not in the pieces of the model: half or more of their"
    assert (words in capsys.readouterr().err) == bool(foreign)
