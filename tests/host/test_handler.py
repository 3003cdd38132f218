"""A fairseq command that fails ends in one sentence; MEMATTN_TRACEBACK=1 shows the traceback."""

import logging
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from harness import PLUGGED, attempt, environment, script

from fairseq_memattn.host.messages import handler
from fairseq_memattn.host.messages.handler import install_excepthook, sentence


def assert_sentence(done, *words):
    *_, last = done.stderr.splitlines()
    assert done.returncode == 1
    assert all(word in last for word in words)
    assert "Traceback" not in done.stdout + done.stderr


def raised(function):
    with pytest.raises(BaseException) as info:
        function()
    return info.value


def test_an_unforeseen_exception_is_named(translator, monkeypatch):
    def fail(*args, **kwargs):
        return {}["no such key"]

    monkeypatch.setattr("fairseq.scoring.build_scorer", fail)
    flags = ["--path", translator.checkpoint]
    hint = "fairseq-generate: error: KeyError: 'no such key'; set MEMATTN_TRACEBACK=1 to see"
    assert_sentence(attempt("fairseq-generate", translator.data, *PLUGGED, *flags), hint)

    monkeypatch.setenv("MEMATTN_TRACEBACK", "1")
    done = attempt("fairseq-generate", translator.data, *PLUGGED, *flags)
    assert "Traceback (most recent call last)" in done.stderr
    assert 'return {}["no such key"]' in done.stderr


def test_a_name_that_is_not_utf8(translator, tmp_path):
    """It is printed with escapes, without an error of Python's logging."""
    flags = ["--path", b"\xff.pt".decode("utf-8", "surrogateescape")]
    done = attempt("fairseq-generate", translator.data, *PLUGGED, *flags, fresh=True)
    assert "Logging error" not in done.stderr and "loading model(s) from \\udcff.pt" in done.stdout
    assert "error: " in done.stderr and "\\udcff.pt" in done.stderr.splitlines()[-1]


def test_sentences():
    """The type and the message in one line; an assertion without one is its line of the source."""

    def check(beam):
        assert beam > 0

    hint = "; set MEMATTN_TRACEBACK=1 to see the traceback"
    assert sentence(ValueError("a\n  b ")) == f"ValueError: a b{hint}"
    assert len(sentence(ValueError("word " * 1000))) < 400
    assert sentence(raised(lambda: check(0))).startswith("AssertionError: assert ")


def test_an_error_in_a_worker_has_no_traceback_in_its_text():
    from torch._utils import ExceptionWrapper

    from fairseq_memattn.errors import MemAttnError

    def work():
        raise MemAttnError("line 3 must have two columns, but has 1")

    failed = raised(work)
    wrapper = ExceptionWrapper((type(failed), failed, failed.__traceback__), "in worker 0")
    assert sentence(raised(wrapper.reraise)) == "line 3 must have two columns, but has 1"


@pytest.fixture(params=["a closed pipe", "/dev/full"])
def unwritable(request, monkeypatch):
    """A standard output that cannot be written, of fairseq-generate, and what is said of it."""
    if request.param == "/dev/full":
        if not Path(request.param).is_char_device():
            pytest.skip("needs the device /dev/full")
        writer = os.open(request.param, os.O_WRONLY)
        words = "the standard output cannot be written: No space left on device"
    else:
        reader, writer = os.pipe()
        os.close(reader)
        words = None
    monkeypatch.setattr("sys.argv", ["/bin/fairseq-generate"])
    monkeypatch.setattr("sys.excepthook", None)
    monkeypatch.setattr("logging.Handler.handleError", logging.Handler.handleError)
    with open(writer, "w", encoding="utf-8") as stream:
        install_excepthook()
        yield stream, f"fairseq-generate: error: {words}\n" if words else ""
        os.dup2(os.open(os.devnull, os.O_WRONLY), writer)


def test_an_output_that_cannot_be_written(unwritable, capsys, monkeypatch):
    """It is told without a file of Python, and a pipe that its reader closes is no error."""
    monkeypatch.setattr("sys.stdout", unwritable[0])
    failed = raised(lambda: print("S-0\ta", flush=True))
    sys.excepthook(type(failed), failed, None)
    assert capsys.readouterr().err == unwritable[1]


def test_a_log_that_cannot_be_written(unwritable, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdout", unwritable[0])
    log = logging.Logger("log")
    log.addHandler(logging.StreamHandler(sys.stdout))
    assert isinstance(raised(lambda: log.error("x")), OSError)
    assert capsys.readouterr().err == ""


def test_logs_on_a_full_disk(unwritable, capsys, monkeypatch):
    """The reason is said once, however many handlers write to the disk."""
    monkeypatch.setattr(handler, "_unwritten", set())
    log = logging.Logger("log")
    for _ in range(2):
        log.addHandler(logging.StreamHandler(unwritable[0]))
    log.error("x")
    assert capsys.readouterr().err.count("a log cannot be written") == 1


def test_an_output_that_cannot_be_written_at_the_end(unwritable, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdout", unwritable[0])
    monkeypatch.setattr("os._exit", lambda status: print(status, file=sys.stderr))
    print("S-0\ta")
    handler._write_output()
    assert capsys.readouterr().err == f"{unwritable[1]}1\n"


def test_other_programs_keep_their_tracebacks(monkeypatch):
    monkeypatch.setattr("sys.argv", ["/home/me/analysis.py"])
    monkeypatch.setattr("sys.excepthook", sys.__excepthook__)
    install_excepthook()
    assert sys.excepthook is sys.__excepthook__


@pytest.mark.parametrize(
    ("closing", "env", "words"),
    [
        (">&-", {}, "error: the standard output is closed, so that nothing can be printed"),
        ("<&-", {}, ""),
        ("2>&-", {}, ""),
        ("", {"PYTHONIOENCODING": "ascii"}, ""),
    ],
)
@pytest.mark.full
def test_streams_that_are_closed_or_not_utf8(closing, env, words, translator):
    command = [script("fairseq-generate"), translator.data, *PLUGGED, "--path"]
    command += [translator.checkpoint, "--max-len-b", "3"]
    shell = f"{shlex.join(map(str, command))} {closing}"
    done = subprocess.run(shell, shell=True, capture_output=True, env=environment() | env)
    assert words.encode() in done.stderr and b"Traceback" not in done.stderr
    assert (done.returncode == 0) != bool(words)
    assert (done.stdout.count(b"\nH-") == 34) != bool(words)
