"""A wrong configuration of fairseq-hydra-train ends in one sentence."""

import shlex

import pytest
from harness import PLUGIN, ROOT, attempt

WIKITEXT = ROOT / "recipes" / "abc" / "wikitext103.yaml"


def hydra_train(recipe, folder, *overrides, **options):
    given = ["--config-dir", recipe.parent, "--config-name", recipe.stem]
    common = [
        f"common.user_dir={PLUGIN}",
        "common.cpu=true",
        "common.fp16=false",
        f"hydra.run.dir={folder / 'hydra'}",
    ]
    return attempt("fairseq-hydra-train", *given, *common, *overrides, cwd=folder, **options)


def assert_sentence(done, words):
    *_, last = done.stderr.splitlines()
    assert done.returncode == 1
    assert last.startswith(f"fairseq-hydra-train: error: {words}"), last
    for word in ("Traceback", "HYDRA_FULL_ERROR"):
        assert word not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("surplus", "OverrideParseException: "),
        ("optimization.clip_norm=nan", "--clip-norm must be a finite number, but is nan"),
        ("model.abc_causal_slots=many", "--abc-causal-slots must be a number, but is 'many'"),
        ("+model.decoder_layer=3", "model.decoder_layer is no option of abc_mlp_transformer_lm"),
    ],
)
def test_wrong_values(override, words, tmp_path):
    assert_sentence(hydra_train(WIKITEXT, tmp_path, *shlex.split(override)), words)


def test_the_checks_run_before_the_training_imports_the_user_dir(tmp_path):
    """In a process of its own, in which nothing has imported the plugin."""
    done = hydra_train(WIKITEXT, tmp_path, "+model.decoder_layerz=3", fresh=True)
    assert_sentence(
        done, "model.decoder_layerz is no option of abc_mlp_transformer_lm_wiki103; the most simila"
    )
