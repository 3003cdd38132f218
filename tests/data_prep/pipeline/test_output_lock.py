"""Only one preparation writes to a folder."""

import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest
from official_archives import message
from preparing import prepare

from fairseq_memattn.data_prep.commands import discourse, own_corpus
from fairseq_memattn.data_prep.pipeline import binarise
from fairseq_memattn.data_prep.pipeline.stages import LOCK, locks_output
from fairseq_memattn.errors import MemAttnError

HOLD = """\
import fcntl, sys
files = [open(path, "a") for path in sys.argv[1:]]
for file in files:
    fcntl.lockf(file, fcntl.LOCK_EX)
print("locked", flush=True)
sys.stdin.read()
"""
TEXT = ["--text", "train=train", "--langs", "en"]
COMMANDS = [(own_corpus, TEXT), (binarise, TEXT), (discourse, [])]


def test_a_second_preparation_is_refused_until_the_first_is_dead(tmp_path, capsys):
    output = tmp_path / "data"
    output.mkdir()
    holding = [sys.executable, "-SEc", HOLD, output / LOCK, tmp_path / ".data.lock"]
    with subprocess.Popen(holding, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout and holder.stdout.readline() == b"locked\n"
        for command, options in COMMANDS:
            assert prepare(command, [*options, "--output", str(output)]) == 1
            told = message(capsys.readouterr().err)
            assert told == f"another preparation is writing to --output {output}"
        holder.kill()
    assert [path.name for path in output.iterdir()] == [LOCK]
    locks_output(lambda _: None)(Namespace(output=output))
    assert list(output.iterdir()) == []


def test_the_folder_of_a_failed_preparation_is_removed(tmp_path: Path) -> None:
    def fail(args: Namespace) -> None:
        assert (args.output / LOCK).exists()
        raise MemAttnError("wrong")

    with pytest.raises(MemAttnError):
        locks_output(fail)(Namespace(output=tmp_path / "new" / "data"))
    assert list(tmp_path.iterdir()) == []
