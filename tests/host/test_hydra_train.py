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
        ("dataset.batch_size=many", "ConfigCompositionException: Error merging override dataset.b"),
        ("surplus", "OverrideParseException: "),
        ("optimization.clip_norm=nan", "--clip-norm must be a finite number, but is nan"),
        ("model.abc_causal_slots=many", "--abc-causal-slots must be a number, but is 'many'"),
        ("+model.decoder_layer=3", "model.decoder_layer is no option of abc_mlp_transformer_lm"),
        ("model._name=nothing", ""),
        ("common.user_dir=/no/such", "FileNotFoundError: /no/such"),
        ("", ""),
        ("--config-name nothing", f"--config-name nothing: {WIKITEXT.parent}/nothing.yaml does"),
    ],
)
def test_wrong_values(override, words, tmp_path):
    assert_sentence(hydra_train(WIKITEXT, tmp_path, *shlex.split(override)), words)


@pytest.mark.parametrize("yaml", ["task: [", "task: !!python/object:os.system {}"])
def test_wrong_files(yaml, tmp_path):
    (tmp_path / "own.yaml").write_text(yaml, encoding="utf-8")
    assert_sentence(hydra_train(tmp_path / "own.yaml", tmp_path), "")


def test_hydra_imports_the_hook_before_the_user_dir(tmp_path):
    """In a process of its own, in which nothing has imported the plugin."""
    done = hydra_train(WIKITEXT, tmp_path, "dataset.batch_sizes=8", fresh=True)
    assert_sentence(done, "ConfigCompositionException: Could not override 'dataset.batch_sizes'")


def test_the_checks_run_before_the_training_imports_the_user_dir(tmp_path):
    """In a process of its own, in which nothing has imported the plugin."""
    done = hydra_train(WIKITEXT, tmp_path, "+model.decoder_layerz=3", fresh=True)
    assert_sentence(
        done, "model.decoder_layerz is no option of abc_mlp_transformer_lm_wiki103; the most simila"
    )


def test_a_traceback_on_request(tmp_path, monkeypatch):
    monkeypatch.setenv("MEMATTN_TRACEBACK", "1")
    done = hydra_train(WIKITEXT, tmp_path, "dataset.batch_sizes=8")
    assert "Traceback (most recent call last)" in done.stderr
