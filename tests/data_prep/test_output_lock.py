"""Only one preparation writes to a folder."""

import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest
from official_archives import message

from fairseq_memattn.data_prep.commands import binarise, discourse, own_corpus
from fairseq_memattn.data_prep.pipeline.files import DataError
from fairseq_memattn.data_prep.pipeline.output_lock import LOCK, run_locked

HOLD = """\
import fcntl, sys
files = [open(path, "a") for path in sys.argv[1:]]
for file in files:
    fcntl.lockf(file, fcntl.LOCK_EX)
print("locked", flush=True)
sys.stdin.read()
"""
TEXT = ["--text", "train=train", "--langs", "en"]
MAINS = [(own_corpus.main, TEXT), (binarise.main, TEXT), (discourse.main, [])]


def nothing(_: Namespace) -> None:
    """Work that writes no files."""


def test_a_second_preparation_is_refused_until_the_first_is_dead(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "data"
    output.mkdir()
    command = [sys.executable, "-SEc", HOLD, output / LOCK, tmp_path / ".data.lock"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout and holder.stdout.readline() == b"locked\n"
        for main, options in MAINS:
            assert main([*options, "--output", str(output)]) == 1
            told = message(capsys.readouterr().err)
            assert told == f"another preparation is writing to --output {output}"
        holder.kill()
    assert [path.name for path in output.iterdir()] == [LOCK]
    assert run_locked(nothing, Namespace(output=output)) == 0
    assert list(output.iterdir()) == []


def test_the_folder_of_a_failed_preparation_is_removed(tmp_path: Path) -> None:
    def fail(args: Namespace) -> None:
        assert (args.output / LOCK).exists()
        raise DataError("wrong")

    assert run_locked(fail, Namespace(output=tmp_path / "new" / "data")) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["file", "file/data", "/dev/full"])
def test_an_output_that_cannot_be_a_folder(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    output = tmp_path / name
    where = f"{output}: {output.parent}" if name == "file/data" else str(output)
    for main, options in MAINS:
        assert main([*options, "--output", str(output)]) == 1
        told = message(capsys.readouterr().err)
        assert told == f"--output {where} is a file; it must be a folder"
