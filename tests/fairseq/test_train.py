"""fairseq-train with the plugin: its options do what they do for fairseq's own models."""

import shutil

import pytest
import torch
from full import full, others_in_full
from harness import (
    COMMON,
    PLUGIN,
    ROOT,
    TRANSLATOR,
    Trained,
    assert_same_weights,
    logged,
    run,
    train,
    weights,
)
from omegaconf import OmegaConf
from questions import prepare, records

from fairseq_memattn.host.checkpoints import read_checkpoint

needs_gpu = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="fairseq trains in half precision on a GPU only"
)


EXACT = {"rtol": 0, "atol": 0}


def test_optimiser_holds_every_weight_once(translator):
    state = read_checkpoint(translator.checkpoint)
    weights = {name: w for name, w in state["model"].items() if w.numel() > 1}
    shared = sum("embed_tokens" in name or "output_projection" in name for name in weights)
    assert shared == 3  # --share-all-embeddings: three names of one matrix
    moments = state["last_optimizer_state"]["state"]
    assert len(moments) == len(weights) - shared + 1
    controls = [name for name in weights if "controls" in name]
    assert len(controls) == 2
    assert sum(tuple(m["exp_avg"].shape) == (8, 32) for m in moments.values()) == 1  # causal
    assert sum(tuple(m["exp_avg"].shape) == (16, 32) for m in moments.values()) == 1  # cross


# -------------------------------------------------------------------------------- validation


@pytest.fixture
def elsewhere(tmp_path):
    """A copy of the plugin outside the repository."""
    shutil.copytree(PLUGIN, tmp_path / "copied" / PLUGIN.name)
    return tmp_path / "copied"


@pytest.mark.parametrize("where", [full("copy"), "folder of the copy"])
def test_validate_by_every_way_to_the_plugin(where, translator, tmp_path, elsewhere):
    """`--user-dir` as a relative and as an absolute path, out of the repository."""
    user_dir, cwd = {
        "copy": (elsewhere / PLUGIN.name, tmp_path),
        "folder of the copy": (PLUGIN.name, elsewhere),
    }[where]
    flags = ["--user-dir", user_dir, "--cpu", "--max-tokens", 1000, "--log-format", "json"]
    flags += ["--task", "translation", "--required-batch-size-multiple", 1]
    path = ["--path", translator.checkpoint]
    done = run("fairseq-validate", translator.data, *flags, *path, cwd=cwd, fresh=True)
    (again,) = logged(done.stdout + done.stderr, "valid")
    trained = logged(translator.log, "valid")[-1]
    assert float(again["valid_loss"]) == pytest.approx(float(trained["valid_loss"]), abs=2e-3)


# --------------------------------------------------------------------------------------- GPUs


@needs_gpu
@pytest.mark.parametrize("precision", ["--fp16", "--bf16", "--amp", "--memory-efficient-fp16"])
def test_half_precision_learns_as_full(precision, bilingual, tmp_path):
    flags = [flag for flag in TRANSLATOR if flag != "--cpu"]
    full, half = (
        train(bilingual, tmp_path / name, *flags, *extra, "--max-update", 60, gpu=True)
        for name, extra in (("full", []), ("half", [precision]))
    )
    ours, theirs = (float(logged(run.log, "valid")[-1]["valid_loss"]) for run in (half, full))
    assert ours == pytest.approx(theirs, abs=0.2)
    assert all(weight.isfinite().all() for weight in weights(half).values())


# ------------------------------------------------------------------------------------- YAML

RECIPES = sorted(ROOT.glob("recipes/*/*.yaml"))
ONES = [path for path in RECIPES if path.stem in ("wikitext103", "opensubtitles_aware", "squad")]
SMALL = {
    f"model.{side}_{name}": value
    for side in ("encoder", "decoder")
    for name, value in (
        ("layers", 1),
        ("embed_dim", 32),
        ("ffn_embed_dim", 32),
        ("attention_heads", 2),
    )
}
BRIEFLY = {
    "common.user_dir": PLUGIN,
    "common.cpu": "true",
    "common.fp16": "false",
    "common.log_format": "json",
    "common.log_interval": 1,
    "optimization.max_update": 1,
    "optimization.update_freq": "[1]",
    "dataset.num_workers": 0,
}
TRANSLATING = {
    **SMALL,
    "task.source_lang": "en",
    "task.target_lang": "ru",
    "checkpoint.finetune_from_model": "null",
}
ENCODING = {
    **{key: value for key, value in SMALL.items() if "encoder" in key},
    "checkpoint.finetune_from_model": "null",
}
TASKS = {
    "translation": ("bilingual", TRANSLATING),
    "document_translation": ("document_data", TRANSLATING),
    "language_modeling": (
        "monolingual",
        {
            **{key: value for key, value in SMALL.items() if "decoder" in key},
            **{"model.decoder_input_dim": 32, "model.decoder_output_dim": 32},
            "task.tokens_per_sample": 32,
        },
    ),
    "masked_lm": ("monolingual", {**ENCODING, "task.tokens_per_sample": 64}),
    "majority_tagging": (
        None,
        {**ENCODING, "task.length": 32, "task.valid_examples": 8, "dataset.batch_size": 4},
    ),
    "span_corruption": ("monolingual", {**SMALL, "task.source_length": 32}),
    "sentence_prediction": ("sentence_pairs", ENCODING),
    "question_answering": (
        "question_data",
        {**SMALL, "task.max_source_length": 128, "checkpoint.finetune_from_model": "null"},
    ),
    "span_answering": (
        "span_data",
        {
            **ENCODING,
            **{"task.window": 64, "task.stride": 24, "task.max_question": 30},
            "dataset.batch_size": 8,
        },
    ),
}
ADAPTIVE = {
    "model.adaptive_softmax_cutoff": "'200,400'",
    "model.adaptive_input_cutoff": "'200,400'",
}


@pytest.fixture(scope="module")
def span_data(tmp_path_factory):
    """HotpotQA's format, prepared for answers as spans."""
    folder = tmp_path_factory.mktemp("spans")
    options = ["--spans", "--gold-separated", "--repeat-question"]
    return prepare("hotpotqa", folder, options, train=records(40, 1), valid=records(9, 2))


def hydra_train(recipe, data, folder, overrides):
    settings = {**overrides, "checkpoint.save_dir": folder / "checkpoints"}
    if data is not None:
        settings["task.data"] = data
    return run(
        "fairseq-hydra-train",
        *(f"++{key}={value}" for key, value in settings.items()),
        f"hydra.run.dir={folder / 'hydra'}",
        *("--config-dir", recipe.parent, "--config-name", recipe.stem),
        cwd=folder,
    )


def test_yaml_equals_flags(bilingual, tmp_path):
    recipe = tmp_path / "recipe.yaml"
    sizes = {key.removeprefix("model."): value for key, value in SMALL.items()}
    OmegaConf.save(
        {
            "task": {"_name": "translation"},
            "model": {
                "_name": "abc_mlp_transformer",
                "abc_cross_slots": 6,
                "abc_phi_heads": "shared",
                "share_all_embeddings": True,
                **sizes,
            },
            "criterion": {"_name": "cross_entropy"},
            "optimizer": {"_name": "adam"},
            "lr_scheduler": {"_name": "fixed"},
            "optimization": {"lr": [0.005], "clip_norm": 1.0},
            "dataset": {"max_tokens": 1000, "required_batch_size_multiple": 1},
            "checkpoint": {"no_epoch_checkpoints": True},
        },
        recipe,
    )
    hydra_train(recipe, bilingual, tmp_path, {**BRIEFLY, "optimization.max_update": 5})
    by_yaml = tmp_path / "checkpoints" / "checkpoint_last.pt"
    flags = [f"--{key.replace('_', '-')}={value}" for key, value in sizes.items()]
    by_flags = train(
        bilingual,
        tmp_path / "flags",
        *COMMON,
        *("--arch", "abc_mlp_transformer", "--share-all-embeddings"),
        *("--abc-cross-slots", 6, "--abc-phi-heads", "shared", "--max-update", 5),
        *flags,
    )
    assert_same_weights(Trained(bilingual, by_yaml, ""), by_flags, **EXACT)
    saved = read_checkpoint(by_yaml)["cfg"]["model"]
    assert (saved["abc_causal_slots"], saved["abc_activation"]) == (8, "exp")


@pytest.mark.parametrize(
    "recipe", others_in_full(RECIPES, ONES), ids=lambda path: str(path.relative_to(ROOT))
)
def test_recipe(recipe, request, tmp_path):
    """Every recipe is read, built at a small size and trained for one update."""
    written = OmegaConf.load(recipe)
    fixture, overrides = TASKS[written.task._name]
    if written.criterion._name == "adaptive_loss":
        overrides = {**overrides, **ADAPTIVE}
    if written.model._name == "gmat_genbert":  # whose decoder has the encoder's sizes
        overrides = {key: value for key, value in overrides.items() if "decoder" not in key}
    data = None if fixture is None else request.getfixturevalue(fixture)
    done = hydra_train(recipe, data, tmp_path, {**BRIEFLY, **overrides})
    assert logged(done.stdout, "train_inner") or "num_updates" in done.stdout
    state = read_checkpoint(tmp_path / "checkpoints" / "checkpoint_last.pt")
    for key, value in written.model.items():
        if f"model.{key}" not in overrides:
            assert state["cfg"]["model"][key] == value, key
    places = {"causal": "causal_controls", "cross": "cross_controls", "encoder": "encoder.controls"}
    for kind, place in places.items():
        slots = "mlp" in written.model._name and written.model.get(f"abc_{kind}_slots")
        shapes = [w.shape for key, w in state["model"].items() if place in key]
        shared = slots and state["cfg"]["model"]["abc_phi_heads"] == "shared"
        heads = 1 if shared else 2
        assert not slots or [tuple(shape) for shape in shapes] == [(heads * slots, 32)]


@pytest.mark.full
def test_finetuning_begins_with_the_continued_model(monolingual, sentence_pairs, tmp_path):
    """From one recipe to the next; a learning rate of 0 shows what it begins with."""
    recipes = ROOT / "recipes" / "abc"
    last = "checkpoints/checkpoint_last.pt"
    continued, finetuned = tmp_path / "continued", tmp_path / "finetuned"
    for folder in (continued, finetuned):
        folder.mkdir()
    settings = {**BRIEFLY, **ENCODING}
    hydra_train(recipes / "roberta_continued.yaml", monolingual, continued, settings)
    settings |= {"checkpoint.finetune_from_model": continued / last, "optimization.lr": "[0.0]"}
    done = hydra_train(recipes / "glue_mnli.yaml", sentence_pairs, finetuned, settings)
    assert all(f'"{split}_accuracy"' in done.stdout for split in ("valid", "valid1"))
    old, new = (read_checkpoint(folder / last)["model"] for folder in (continued, finetuned))
    assert all(torch.equal(new[name], weight) for name, weight in old.items())
    assert all(name.startswith("classification_heads.") for name in new if name not in old)
