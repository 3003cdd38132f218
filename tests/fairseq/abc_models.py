"""Tiny models of every control and kernel attention, with random weights."""

from typing import Any

import test_gmat
import torch

from fairseq_memattn.attention.controls import CONTROLS, KERNEL_ATTENTION, control_class

NAMES = {f"abc_{name}": name for name in CONTROLS} | {name: name for name in KERNEL_ATTENTION}
CAUSAL = [prefix for prefix, name in NAMES.items() if not control_class(name).causal_refusal]

TRANSLATORS = [f"{prefix}_transformer" for prefix in NAMES]
LANGUAGE_MODELS = [f"{prefix}_transformer_lm" for prefix in CAUSAL]
ROBERTAS = [f"{prefix}_roberta" for prefix in NAMES]
# (architecture, what is special, options)
VARIANTS: list[tuple[str, str, dict[str, Any]]] = [
    ("abc_mlp_transformer", "separate", {"abc_phi_layers": "separate"}),
    ("abc_mlp_transformer", "heads share", {"abc_phi_heads": "shared"}),
    ("abc_workspace_transformer", "separate", {"abc_phi_layers": "separate"}),
    ("rfa_transformer", "gated", {"abc_rfa_gate": True}),
    ("abc_global_transformer", "listed", {"abc_global_positions": "0,3"}),
]
SLOTS = {"abc_cross_slots": 4, "abc_encoder_slots": 4, "abc_stride": 8, "dropout": 0.1}


def translator(arch: str, **options: Any) -> torch.nn.Module:
    causal = 0 if "workspace" in arch else 4
    given = SLOTS | {"abc_causal_slots": causal} | options
    model: torch.nn.Module = test_gmat.build(arch, longest=32, **given)
    return model


def language_model(arch: str) -> torch.nn.Module:
    options = {"abc_causal_slots": 4, "abc_stride": 8, "dropout": 0.1}
    options["max_target_positions"] = 32
    model: torch.nn.Module = test_gmat.build(arch, longest=32, **options)
    return model


def roberta(arch: str) -> torch.nn.Module:
    options = {"abc_encoder_slots": 4, "abc_stride": 8, "dropout": 0.1, "max_positions": 32}
    model: torch.nn.Module = test_gmat.build(arch, longest=32, **options)
    return model
