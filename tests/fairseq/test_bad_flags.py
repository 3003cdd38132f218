"""A mistake ends a command in one sentence that names the flag and the value."""

import math
import shlex
from argparse import ArgumentParser
from dataclasses import fields
from enum import Enum
from typing import get_args, get_type_hints

import pytest
import test_gmat
from abc_models import NAMES
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.tasks import TASK_DATACLASS_REGISTRY, TASK_REGISTRY
from harness import COMMON, PLUGGED, TRANSLATOR, attempt

from fairseq_memattn.attention.controls import CONTROLS, control_class
from fairseq_memattn.attention.controls.options import option_fields
from fairseq_memattn.errors import LARGEST, MemAttnError, flag
from fairseq_memattn.models import abc_config, abc_transformer_lm, gmat_config
from fairseq_memattn.models.bounded_llama import BoundedLlamaConfig
from fairseq_memattn.models.t5 import T5Config
from fairseq_memattn.models.t5mem import T5MemConfig

MISTAKES = {
    "--abc-cross-slots -1": "--abc-cross-slots must be at least 0, but is -1",
    "--cross-self-attention": "--cross-self-attention attends to source and target at once",
    "--arch abc_workspace_transformer --abc-causal-slots 4": "--abc-causal-slots must be 0 with "
    "the control workspace, but is 4: its control vectors are computed from the whole sequence",
}


def assert_one_sentence(done, command, sentence):
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"{command}: error: {sentence}")
    assert done.returncode not in (0, None)
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.parametrize(("flags", "sentence"), MISTAKES.items(), ids=MISTAKES)
def test_mistakes(flags, sentence, bilingual, tmp_path):
    briefly = ["--max-update", 1, "--save-dir", tmp_path]
    done = attempt("fairseq-train", bilingual, *TRANSLATOR, *briefly, *shlex.split(flags))
    assert_one_sentence(done, "fairseq-train", sentence)


def test_an_encoder_alone_as_a_translator(bilingual, tmp_path):
    flags = [*PLUGGED, "--arch", "gmat_bert", "--max-tokens", 100, "--optimizer", "adam"]
    done = attempt("fairseq-train", bilingual, *flags, "--save-dir", tmp_path)
    words = "an encoder without a decoder (gmat_bert, abc_*_roberta) cannot be the model of a task"
    assert_one_sentence(done, "fairseq-train", words)


# Every flag of the plugin, from the dataclasses that declare them. A new flag without limits fails.

CONFIGS = {
    "abc_mlp_transformer": abc_config.ABCConfig,
    "abc_mlp_transformer_lm": abc_transformer_lm.LanguageModelConfig,
    "abc_mlp_roberta": abc_config.ABCEncoderConfig,
    "gmat_bert": gmat_config.GMATBertConfig,
    "gmat_transformer": gmat_config.GMATTransformerConfig,
    "gmat_genbert": gmat_config.GenBertConfig,
    "t5": T5Config,
    "abc_llama": BoundedLlamaConfig,
    "t5mem_v3": T5MemConfig,
}
# Flags of which 0 has a meaning: a size that is switched off or computed, a first seed.
ZERO = {
    *("abc_causal_slots", "abc_cross_slots", "abc_encoder_slots", "gmat_memory"),
    *("gmat_lsh_buckets", "gmat_compress_after", "gmat_memory_layers", "t5_head_dim"),
    *("abc_max_length", "abc_local_window", "abc_random_seed", "abc_low_rank"),
    *("abc_stride", "abc_cluster_bits", "abc_sink_tokens", "abc_slot_bias", "abc_gate_horizon"),
    *("source_context", "target_context", "sentinels", "data_seed", "noise_density"),
    *("chunk_overlap", "abc_kv_heads", "decoder_ffn_embed_dim"),
}
# Flags that are text, and values that make no sense.
TEXTS = {
    "gmat_decoder_control": ["nothing", ""],
    "context_separator": ["<pad>", "</s>", "<s>", "<unk>", "", "a b"],
    **dict.fromkeys(("source_token", "target_token"), ["a b", " "]),
    "eval_bleu_tokenizer": [],  # which is checked with --eval-bleu
    "sampling_weights": ["x", "1,,2", "-1", "nan"],
    "abc_controls": [
        *("x", "{}", "[]", '["mlp"]', '[{"slots": 4}]', '[{"control": "no", "slots": 4}]'),
        '[{"control": "mlp", "slots": 4, "stride": 2}]',
    ],
    "abc_global_positions": ["x", "-1", "1.5"],
    "abc_causal_layers": [
        "nothing",
        "mlp:0",
        "softmax:4",
        "workspace",
        "mlp,",
        "mlp:2," * 1000 + "mlp",
    ],
}


def is_own(cls):
    return cls.__module__.startswith("fairseq_memattn")


def own_fields(config):
    """The fields that a dataclass of the plugin has in addition to fairseq's."""
    base = next(cls for cls in config.__mro__ if not is_own(cls))
    theirs = {entry.name for entry in fields(base)}
    return [entry for entry in fields(config) if entry.name not in theirs]


def wrong_values(name, kind, limits):
    """Values out of range. limits: the metadata of the field"""
    if kind is bool or name == "data":
        return []
    if isinstance(kind, type) and issubclass(kind, Enum):
        return ["nothing"]
    if kind in (str, tuple[int, ...]):
        return TEXTS[name]
    if limits.get("rate"):
        return [-0.1, 1.0, math.nan, math.inf]
    assert "least" in limits, f"{flag(name)} states no limit"
    assert limits["least"] > 0 or name in ZERO, f"does {flag(name)} 0 make sense?"
    wrong = [limits["least"] - 1, -(10**30), limits.get("most", LARGEST) + 1, 10**30]
    return [*wrong, math.nan, math.inf, -math.inf] if kind is float else wrong


def cases_of(owner, config, entries):
    types = get_type_hints(config)
    for entry in entries:
        if str(entry.default).startswith("${"):  # the value of another flag
            continue
        kinds = [k for k in get_args(types[entry.name]) if k is not type(None)]  # of Optional
        values = wrong_values(entry.name, (kinds or [types[entry.name]])[0], entry.metadata)
        if values:
            yield pytest.param(owner, entry.name, values, id=f"{owner} {entry.name}")


def of_tasks():
    for name, config in TASK_DATACLASS_REGISTRY.items():
        if is_own(TASK_REGISTRY[name]):
            yield from cases_of(name, config, own_fields(config))


def of_models():
    for arch, config in CONFIGS.items():
        yield from cases_of(arch, config, own_fields(config))


def of_controls():
    for prefix, control in NAMES.items():
        options = control_class(control).Options
        for name, entry in option_fields(options).items():
            kind, limits = get_type_hints(options)[name], {"least": entry.metadata["at_least"]}
            choices = entry.metadata["choices"]
            values = ["nothing"] if choices else wrong_values(f"abc_{name}", kind, limits)
            if values:
                arch = f"{prefix}_transformer"
                yield pytest.param(arch, f"abc_{name}", values, id=f"{arch} abc_{name}")


@pytest.mark.parametrize(("task", "name", "values"), list(of_tasks()))
def test_every_flag_of_a_task(task, name, values):
    for value in values:
        cfg = TASK_DATACLASS_REGISTRY[task]()
        cfg.data = "nothing"
        setattr(cfg, name, value)
        with pytest.raises(MemAttnError, match=f"^{flag(name)} must "):
            TASK_REGISTRY[task].setup_task(cfg)


@pytest.mark.parametrize(("arch", "name", "values"), [*of_models(), *of_controls()])
def test_every_flag_of_a_model(arch, name, values):
    causal = 0 if "workspace" in arch else 4
    for value in values:
        given = {"abc_causal_slots": causal, "abc_cross_slots": 4, "max_target_positions": 32}
        with pytest.raises(MemAttnError, match=f"^{flag(name)} (must|has) "):
            test_gmat.build(arch, longest=32, **given | {name: value})


def flags_of(cls):
    parser = ArgumentParser()
    if hasattr(cls, "add_args"):
        cls.add_args(parser)
    return {action.dest for action in parser._actions}


def test_no_flag_of_a_model_is_left_out():
    known = {entry.name for config in CONFIGS.values() for entry in fields(config)}
    for control in NAMES.values():
        known |= {f"abc_{name}" for name in option_fields(control_class(control).Options)}
    for arch, cls in ARCH_MODEL_REGISTRY.items():
        if is_own(cls) or getattr(cls, "control", None) in CONTROLS:
            theirs = [flags_of(base) for base in cls.__mro__[1:] if not is_own(base)]
            switches = {"no_token_positional_embeddings"}
            assert flags_of(cls) - set().union(*theirs) <= known | switches, arch


def test_another_criterion(tmp_path):
    given = [*COMMON, *"--task majority_tagging --arch gmat_bert_tiny --length 16".split()]
    done = attempt("fairseq-train", *given, "--criterion", "cross_entropy", "--save-dir", tmp_path)
    sentence = "--task majority_tagging needs --criterion sequence_tagging, but it is cross_entropy"
    assert_one_sentence(done, "fairseq-train", sentence)
