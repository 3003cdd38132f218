"""A model of every control strategy, by fairseq's own commands."""

import pytest
from harness import LANGUAGE_MODEL, PLUGGED, TRANSLATOR, generate, hypotheses, lines_of, run, train

from fairseq_memattn.attention.controls import CONTROLS, KERNEL_ATTENTION

ARCHITECTURES = {name: f"abc_{name}_transformer" for name in CONTROLS if name != "mlp"} | {
    name: f"{name}_transformer" for name in KERNEL_ATTENTION
}
CAUSAL = [name for name in ARCHITECTURES if not (CONTROLS | KERNEL_ATTENTION)[name].causal_refusal]


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_trained_and_translating(name, bilingual, corpus, tmp_path):
    flags = [*TRANSLATOR, "--arch", ARCHITECTURES[name], "--abc-stride", 16, "--max-update", 3]
    flags += ["--abc-encoder-slots", 6]
    if name not in CAUSAL:
        flags += ["--abc-causal-slots", 0]
    trained = train(bilingual, tmp_path, *flags)
    search = ["--beam", 3, "--max-len-b", 6]
    together = hypotheses(generate(trained, *search))
    assert len(together) == len(lines_of(corpus / "test.en"))
    fifth = ["--num-shards", 5, "--shard-id", 2]
    alone = hypotheses(generate(trained, *search, "--batch-size", 1, *fifth))
    assert len(alone) > 5
    for number, one in alone.items():
        assert one.positional == pytest.approx(together[number].positional, abs=1e-3)


@pytest.mark.parametrize("name", CAUSAL)
def test_language_model(name, monolingual, tmp_path):
    flags = [*LANGUAGE_MODEL, "--arch", f"{ARCHITECTURES[name]}_lm", "--abc-stride", 16]
    flags += ["--max-update", 3]
    trained = train(monolingual, tmp_path, *flags)
    done = run(
        *("fairseq-eval-lm", monolingual, *PLUGGED, "--path", trained.checkpoint),
        *("--tokens-per-sample", 32, "--context-window", 16, "--max-tokens", 64),
    )
    assert "Perplexity: " in done.stdout + done.stderr
