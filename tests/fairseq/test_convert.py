"""`memattn convert`: another attention from a trained model's weights."""

import shlex

import pytest
from harness import COMMON, LM_SIZES, attempt, convert, flags_of, run, train

from fairseq_memattn.cli import main

TEXTS = shlex.split("--task language_modeling --tokens-per-sample 32 --sample-break-mode none")


@pytest.mark.full
@pytest.mark.parametrize("norm", [[], ["--decoder-normalize-before"]], ids=["after", "before"])
def test_a_window_longer_than_all_texts_predicts_as_before(norm, monolingual, tmp_path):
    """fairseq's transformer_lm has layernorm after each block, unless a flag says otherwise."""
    flags = [*COMMON, *LM_SIZES, *TEXTS, "--arch", "transformer_lm", *norm, "--max-update", 5]
    softmax = train(monolingual, tmp_path / "softmax", *flags)
    arch, output = "abc_window_transformer_lm", tmp_path / "converted.pt"
    shown = convert(monolingual, softmax.checkpoint, arch, output, "--abc-causal-slots 200")
    assert "new weights, to be trained: none" in shown
    told = flags_of(shown)
    on = train(monolingual, tmp_path / "on", *COMMON, *TEXTS, *told, "--max-update", 1, "--lr", 0)
    before, *after = (
        perplexity(monolingual, path) for path in (softmax.checkpoint, output, on.checkpoint)
    )
    assert after == pytest.approx([before] * 2, rel=1e-4)


def perplexity(data, path):
    flags = ["--subset", "valid", "--cpu", "--context-window", 0]
    done = run("memattn", "perplexity", data, "--path", path, *flags)
    return float(done.stdout.split()[-4])


@pytest.mark.parametrize(
    ("arch", "flags", "message"),
    [
        ("t2r_transformer", "--encoder-layers 4", "but has --encoder-layers, which is the checkpo"),
        ("abc_mlp_transformer_lm", "", "transformer is a translation model, but --arch abc_mlp_tr"),
    ],
)
def test_what_cannot_be_is_refused(arch, flags, message, softmax, tmp_path):
    path = ["--path", softmax.checkpoint, "--arch", arch, "--output", tmp_path / "x.pt"]
    done = attempt("memattn", "convert", softmax.data, *path, f"--flags={flags}")
    assert done.returncode == 1
    assert message in done.stderr.splitlines()[-1]
    assert not (tmp_path / "x.pt").exists()


def test_a_model_with_another_memory(translator, tmp_path, capsys):
    given = ["--path", translator.checkpoint, "--arch", "abc_window_transformer"]
    argv = ["convert", translator.data, *given, "--output", tmp_path / "x"]
    assert main(list(map(str, argv))) == 1
    error = capsys.readouterr().err
    assert "abc_mlp_transformer has the weight `" in error
    assert error.endswith("a conversion begins with softmax attention, or with the same control\n")
