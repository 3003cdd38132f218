"""A command that the tests run in their own process does what it does in one of its own."""

import logging
import os
import random
import sys
from pathlib import Path

import numpy as np
import torch
from harness import TRANSLATOR, attempt, train


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
