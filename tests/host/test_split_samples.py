"""Language models whose samples are split over processes learn as in one process."""

import shlex

import pytest
from harness import LANGUAGE_MODEL, start_on, train, train_on
from test_processes import assert_same_weights, losses, validation

pytestmark = pytest.mark.full

BLOCKS = "--tokens-per-sample 27 --store-ema"
LINES = "--sample-break-mode eos --max-tokens 300"  # of different lengths
LEARNED = f"{LINES} --decoder-learned-pos --arch abc_gated_transformer_lm --checkpoint-activations"
ADAPTIVE = "--criterion adaptive_loss --adaptive-softmax-cutoff 20,40 --ddp-backend legacy_ddp"
FLAGS = [*LANGUAGE_MODEL, "--max-update", 4, "--dropout", 0, "--lr", 0.001]


@pytest.mark.parametrize("flags, processes", [(LINES, 2), (BLOCKS, 4), (LEARNED, 2), (ADAPTIVE, 4)])
def test_parts_of_samples(flags, processes, monolingual, tmp_path):
    """Two of four processes have parts of one sample, and the others of the next."""
    flags = [*FLAGS, *shlex.split(flags)]
    one = train(monolingual, tmp_path / "one", *flags, "--update-freq", processes // 2)
    parts = ["--context-parallel", 2]
    several = train_on(processes, monolingual, tmp_path / "several", *flags, *parts)
    assert losses(several) == pytest.approx(losses(one), abs=2e-3)
    assert validation(several.log) == pytest.approx(validation(one.log), abs=2e-3)
    assert_same_weights(several, one, rtol=1e-4, atol=2e-5)


MISTAKES = {
    "--context-parallel 3": "--context-parallel must divide the number of processes, 2, but is 3",
    "--context-parallel 2 --sentence-avg": "--context-parallel needs --criterion cross_entropy",
    "--context-parallel 2 --criterion label_smoothed_cross_entropy": "--context-parallel needs",
    "--context-parallel 2 --abc-causal-layers mlp,softmax": "but one has softmax",
    "--context-parallel 2 --arch abc_window_transformer_lm": "but one has WindowControl",
}


@pytest.mark.parametrize(("flags", "sentence"), MISTAKES.items(), ids=MISTAKES)
def test_mistakes(flags, sentence, monolingual, tmp_path):
    given = [*FLAGS, *shlex.split(flags), "--save-dir", tmp_path / "model"]
    for process in start_on(2, tmp_path / "streams", "fairseq-train", monolingual, *given):
        done = process.wait()
        assert done.returncode == 1
        assert sentence in done.stderr.splitlines()[-1]
