"""A wrong configuration of fairseq-hydra-train ends in one sentence."""

import shlex

import pytest
from harness import PLUGIN, ROOT, attempt
from omegaconf import OmegaConf

from fairseq_memattn.host.messages.hydra import in_keys

RECIPES = {path.parent: path for path in ROOT.glob("recipes/*/*.yaml")}.values()  # one of each
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


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_key_that_a_recipe_cannot_have(recipe, tmp_path):
    done = hydra_train(recipe, tmp_path, "dataset.batch_sizes=8")
    assert_sentence(
        done,
        "configuration: Could not override 'dataset.batch_sizes'; Key 'batch_sizes' not in "
        "'DatasetConfig'; the most similar are batch_size, batch_size_valid",
    )


@pytest.mark.parametrize(
    ("override", "words"),
    [
        (
            "dataset.batch_size=many",
            "configuration: Error merging override dataset.batch_size=many; Value 'many' of type "
            "'str' could not be converted to Integer",
        ),
        ("surplus", "configuration: Error parsing override 'surplus'; missing EQUAL at '<EOF>'"),
        (
            "optimization.clip_norm=nan",
            "optimization.clip_norm must be a finite number, but is nan",
        ),
        ("model.abc_causal_slots=many", "model.abc_causal_slots must be a number, but is 'many'"),
        ("model.abc_causal_slots=-3 task.data=", "model.abc_causal_slots must be 0 (softmax"),
        ("model._name=nothing", "model._name must be registered with fairseq, but nothing is not"),
        ("lr_scheduler._name=no", "lr_scheduler._name must be registered with fairseq, but no is"),
        ("task._name=nothing", "task._name must be registered with fairseq, but nothing is not"),
        ("~task._name", "task._name must be given"),
        ("+model.decoder_layer=3", "model.decoder_layer is no option of abc_mlp_transformer_lm"),
        (
            "model.dropout=0.1",
            "configuration: Could not override 'model.dropout'; To append to your config use "
            "+model.dropout=0.1; Key 'dropout' is not in struct",
        ),
        ("common.user_dir=/no/such", "common.user_dir /no/such does not exist"),
        ("", "task.data must be given: the folder that fairseq-preprocess writes"),
        ("task.data=/no/such", "task.data /no/such does not exist"),
        (
            "hydra/launcher=nothing",
            "configuration: In 'hydra/config': Could not find 'hydra/launcher/nothing'; Available",
        ),
        ("--config-dir no_such", "configuration: Additional config directory '"),
        ("--config-name nothing", f"--config-name nothing: {WIKITEXT.parent}/nothing.yaml does"),
    ],
)
def test_wrong_values(override, words, tmp_path):
    assert_sentence(hydra_train(WIKITEXT, tmp_path, *shlex.split(override)), words)


@pytest.mark.parametrize(
    ("yaml", "words"),
    [
        ("task: [", "configuration: while parsing a flow node"),
        ("task: !!python/object:os.system {}", "configuration: could not determine a constructor"),
        (
            "common:\n  seedx: 1\n",
            "configuration: Error merging 'own' with schema; Key 'seedx'",
        ),
    ],
)
def test_wrong_files(yaml, words, tmp_path):
    (tmp_path / "own.yaml").write_text(yaml, encoding="utf-8")
    assert_sentence(hydra_train(tmp_path / "own.yaml", tmp_path), words)


def test_hydra_imports_the_hook_before_the_user_dir(tmp_path):
    """In a process of its own, in which nothing has imported the plugin."""
    done = hydra_train(WIKITEXT, tmp_path, "dataset.batch_sizes=8", fresh=True)
    assert_sentence(done, "configuration: Could not override 'dataset.batch_sizes'; Key")


def test_the_checks_run_before_the_training_imports_the_user_dir(tmp_path):
    """In a process of its own, in which nothing has imported the plugin."""
    done = hydra_train(WIKITEXT, tmp_path, "+model.decoder_layerz=3", fresh=True)
    assert_sentence(
        done, "model.decoder_layerz is no option of abc_mlp_transformer_lm_wiki103; the most simila"
    )


def test_a_message_in_keys_of_the_configuration():
    cfg = OmegaConf.create(
        {
            "a": {"lr": 1, "max_len": "???", "seed": 1},
            "b": {"seed": "${a.seed}", "lr": 1},
            "c": None,
        }
    )
    told = in_keys("--max-len, --lr, --none and (--seed) must be 3--seed", cfg)
    assert told == "a.max_len, --lr, --none and (a.seed) must be 3--seed"


def test_a_traceback_on_request(tmp_path, monkeypatch):
    monkeypatch.setenv("MEMATTN_TRACEBACK", "1")
    done = hydra_train(WIKITEXT, tmp_path, "dataset.batch_sizes=8")
    assert "Traceback (most recent call last)" in done.stderr
