"""How the memattn command ends: in one sentence, whatever happens."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from fairseq_memattn import cli
from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.files import write_text

FULL = Path("/dev/full")
ROOT = Path(__file__).parents[2]
HINT = "set MEMATTN_TRACEBACK=1 to see the traceback"
IN_PROCESS = """
import sys
from types import SimpleNamespace
from fairseq_memattn import cli

def run(args):
    {body}

cli._load = lambda name: SimpleNamespace(add_arguments=lambda parser: None, run=run)
sys.exit(cli.main(["score"]))
"""


def ended(monkeypatch, error):
    """The exit status of a command that raises the error."""

    def run(args):
        raise error

    command = SimpleNamespace(add_arguments=lambda parser: None, run=run)
    monkeypatch.setattr(cli, "_load", lambda name: command)
    return cli.main(["score"])


def in_a_process(body, **streams):
    """A process whose command has this body."""
    argv = [sys.executable, "-c", IN_PROCESS.format(body=body)]
    env = {**os.environ, "PYTHONUNBUFFERED": ""}
    return subprocess.run(argv, cwd=ROOT, env=env, stderr=subprocess.PIPE, text=True, **streams)


@pytest.mark.parametrize(
    "error, said",
    [
        (ValueError("--x is wrong"), "--x is wrong"),
        (KeyError("x"), f"KeyError: 'x'; {HINT}"),
        (RuntimeError("first\nsecond"), f"RuntimeError: first second; {HINT}"),
    ],
)
def test_any_error_is_one_sentence(error, said, monkeypatch, capsys):
    assert ended(monkeypatch, error) == 1
    assert capsys.readouterr().err == f"memattn score: error: {said}\n"


def test_an_interruption_is_one_sentence(monkeypatch, capsys):
    assert ended(monkeypatch, KeyboardInterrupt()) == 130
    assert capsys.readouterr().err == "memattn score: interrupted\n"


def test_a_terminated_command_removes_its_temporary_files(tmp_path):
    file = tmp_path / "output.tmp"
    body = f"""
    import os, pathlib, signal
    file = pathlib.Path({str(file)!r})
    try:
        file.touch()
        os.kill(os.getpid(), signal.SIGTERM)
    finally:
        file.unlink()
"""
    done = in_a_process(body)
    assert (done.returncode, done.stderr) == (128 + signal.SIGTERM, "")
    assert not file.exists()


@pytest.mark.parametrize(
    ("raised", "status"), [("pass", 141), ("raise KeyError", 1), ("sys.exit(3)", 3)]
)
def test_a_closed_pipe_adds_no_words(raised, status):
    reader, writer = os.pipe()
    os.close(reader)
    done = in_a_process(f"print('x'); {raised}", stdout=writer)
    os.close(writer)
    assert done.stderr.count("\n") == (raised == "raise KeyError")
    assert "BrokenPipe" not in done.stderr
    assert done.returncode == status


@pytest.mark.skipif(not FULL.is_char_device(), reason="needs the device /dev/full")
@pytest.mark.parametrize("length", [1, 100_000])
def test_a_full_disk_behind_the_output_is_one_sentence(length, monkeypatch, capsys):
    """The error comes when the command prints or when it ends."""

    def run(args):
        print("x" * length)

    with open(FULL, "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        command = SimpleNamespace(add_arguments=lambda parser: None, run=run)
        monkeypatch.setattr(cli, "_load", lambda name: command)
        assert cli.main(["score"]) == 1
    said = "the standard output cannot be written: No space left on device"
    assert capsys.readouterr().err == f"memattn score: error: {said}\n"


@pytest.mark.skipif(not FULL.is_char_device(), reason="needs the device /dev/full")
def test_a_full_device_is_named(tmp_path):
    link = tmp_path / "scores.json"
    link.symlink_to(FULL)
    for path in (FULL, link):
        told = f"^{path} cannot be written: No space left on device$"
        with pytest.raises(MemAttnError, match=told):
            write_text(path, "x")
