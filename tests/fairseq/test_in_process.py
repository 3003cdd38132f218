"""A command that the tests run in their own process does what it does in one of its own."""

import logging
import os
import random
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from full import full
from harness import PLUGGED, TRANSLATOR, attempt, hypotheses, logged, run, train

from fairseq_memattn.host.checkpoints import read_checkpoint


@pytest.mark.full
def test_training(bilingual, tmp_path):
    flags = [*TRANSLATOR, "--max-update", 3, "--dropout", 0.1]
    fresh = train(bilingual, tmp_path / "fresh", *flags, fresh=True)
    here = train(bilingual, tmp_path / "here", *flags)
    for tag, loss in (("train_inner", "loss"), ("valid", "valid_loss")):
        one, other = (logged(trained.log, tag) for trained in (fresh, here))
        assert [row[loss] for row in one] == [row[loss] for row in other] != []
    one, other = (read_checkpoint(trained.checkpoint)["model"] for trained in (fresh, here))
    assert all(torch.equal(weight, other[name]) for name, weight in one.items())


def bleu(done):
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("Generate test"))
    return line


@pytest.mark.full
def test_generation(translator):
    flags = ["--path", translator.checkpoint, "--max-len-b", 10, "--beam", 2]
    given = [translator.data, *PLUGGED, *flags]
    fresh = run("fairseq-generate", *given, "--num-workers", 1, fresh=True)
    here = run("fairseq-generate", *given)
    assert hypotheses(here.stdout) == hypotheses(fresh.stdout)
    assert bleu(here) == bleu(fresh)


@pytest.mark.parametrize(
    ("command", "flags"),
    [full("fairseq-generate", [*PLUGGED, "--path", "nothing.pt"]), ("memattn", ["no-command"])],
)
def test_failure(command, flags, translator):
    data = [translator.data] if command != "memattn" else []
    fresh, here = (attempt(command, *data, *flags, fresh=fresh) for fresh in (True, False))
    assert here.returncode == fresh.returncode != 0
    assert here.stderr.splitlines()[-1] == fresh.stderr.splitlines()[-1]


def test_it_leaves_the_process_as_it_was(bilingual, tmp_path):
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)

    def state():
        return (
            (sys.argv, sys.path[:], sys.excepthook, sys.stdin, sys.stdout, sys.stderr),
            (logging.root.handlers[:], logging.root.level, dict(os.environ), Path.cwd()),
            (random.getstate(), np.random.get_state()[1].tolist(), torch.is_grad_enabled()),
            torch.get_rng_state().tolist(),
        )

    before = state()
    train(bilingual, tmp_path, *TRANSLATOR, "--max-update", 1, cwd=tmp_path)
    attempt("fairseq-train", bilingual, "--no-such-flag")
    assert state() == before


def test_streams(tmp_path):
    script = tmp_path / "echo.py"
    script.write_text(
        "import os, sys\n"
        "print(sys.argv[1:], sys.stdin.read())\n"
        "os.system('echo a child')\n"
        "print('careful', file=sys.stderr)\n"
        "sys.exit(3)\n"
    )
    done = attempt(str(script), 1, "x", stdin="typed", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (3, "careful\n")
    assert sorted(done.stdout.splitlines()) == ["['1', 'x'] typed", "a child"]
