"""A wrong configuration of fairseq-hydra-train ends in one sentence."""

import shlex

import pytest
from full import full
from harness import PLUGIN, ROOT, attempt

from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.host.correctness.hydra_train import check_config_file

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
        full("surplus", "OverrideParseException: "),
        full("optimization.clip_norm=nan", "--clip-norm must be a finite number, but is nan"),
        full("model.abc_causal_slots=many", "--abc-causal-slots must be a number, but is 'many'"),
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


@pytest.mark.parametrize(
    "content",
    [
        "a: &a [1, *a]",
        "".join(f"a{n}: &a{n} [{', '.join(9 * [f'*a{n - 1}' if n else 'x'])}]\n" for n in range(9)),
    ],
)
def test_aliases_without_end(content, tmp_path):
    """hydra would expand them until the memory is full."""
    argv = ["--config-dir", str(tmp_path), "--config-name", "own"]
    (tmp_path / "own.yaml").write_text(content)
    with pytest.raises(MemAttnError, match="own.yaml: its aliases expand to more than 100,000"):
        check_config_file(argv)
    (tmp_path / "own.yaml").write_text("a: &a [1, 2]\nb: *a\nc: {d: *a}\n")
    check_config_file(argv)
