"""fairseq on a tiny RoBERTa."""

import os

from in_process import run_in_process

import fairseq_memattn

COMMON = "--cpu --num-workers 0 --batch-size 4 --required-batch-size-multiple 1 --log-format json"
TINY = "--arch roberta --encoder-layers 1 --encoder-embed-dim 8 --encoder-ffn-embed-dim 8 "
TINY += "--encoder-attention-heads 2 --optimizer adam --lr 0.1 --seed 1"


def fairseq(command: str, data: object, flags: str) -> str:
    """What fairseq-COMMAND logs when this process runs it."""
    fairseq_memattn.register()
    argv = [f"fairseq-{command}", str(data), *COMMON.split(), *flags.split()]
    done = run_in_process(argv[0], argv, None, None, os.environ)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr
