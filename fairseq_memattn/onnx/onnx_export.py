"""Writes a model as ONNX graphs: encoder.onnx, step.onnx, and onnx.json, which describes them."""

import json
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.onnx.onnx_decoder import DESCRIPTION, ENCODER, STEP
from fairseq_memattn.onnx.step_graphs import MEMORY, STATE, EncoderGraph, Model, Part, StepGraph
from fairseq_memattn.transformers.decoder import BoundedDecoderForCausalLM
from fairseq_memattn.transformers.transformer_config import StackConfig
from fairseq_memattn.transformers.transformer_models import (
    BoundedTransformerForConditionalGeneration,
)

LOGS = ("torch.onnx._internal.exporter._registration", "onnx_ir", "onnxscript")
NEEDED = ("onnx", "onnxscript")
# Later ones have an operator Attention, whose masks in onnxruntime do not broadcast over queries.
OPSET = 20
# Of the tensors that are traced: no two alike, and none 0 or 1, which would become constants.
TRACED = {"batch": 2, "source": 7, "past": 5}


@torch.no_grad()
def write_onnx(model: Model, folder: Path) -> None:
    """Writes the graphs into a folder. `OnnxDecoder` runs them.

    model: in float32, on the CPU; it is in evaluation mode afterwards

    Raises MemAttnError for a model that `check` refuses, and for missing packages.
    """
    check(model)
    model.eval()
    from fairseq_memattn.onnx.translations import TRANSLATIONS

    graphs = {STEP: (export_step(model), *step_names(StepGraph(model).parts))}
    if isinstance(model, BoundedTransformerForConditionalGeneration):
        memories = [name for part in EncoderGraph(model).parts for name in part.names()]
        graphs[ENCODER] = (export_encoder(model), ["tokens", "mask"], memories)
    for file, (program, inputs, outputs) in graphs.items():
        with _quiet():
            torch.onnx.export(
                program,
                (),
                folder / file,
                input_names=inputs,
                output_names=outputs,
                opset_version=OPSET,
                dynamo=True,
                external_data=True,
                custom_translation_table=TRANSLATIONS,
                verbose=False,
            )
    text = json.dumps(description(model), indent=2)
    (folder / DESCRIPTION).write_text(text + "\n", encoding="utf-8")


def check(model: Any) -> None:
    """What `write_onnx` refuses.

    Raises MemAttnError for a model of another class, for a global memory in the encoder, and if
    onnx or onnxscript is missing.
    """
    if not isinstance(model, Model):
        raise MemAttnError(
            f"ONNX graphs of a {type(model).__name__} are not supported, but those of "
            f"{', '.join(cls.__name__ for cls in get_args(Model))} are"
        )
    if getattr(model.config, "gmat", None) is not None:
        raise MemAttnError("ONNX graphs of an encoder with a global memory are not supported")
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise MemAttnError(
            f"ONNX graphs need {missing[0]}, which is missing: run `pip install onnx onnxscript`"
        )


@torch.no_grad()
def export_encoder(model: BoundedTransformerForConditionalGeneration) -> ExportedProgram:
    """`EncoderGraph` by `torch.export`, for batches and sources of any size."""
    graph = EncoderGraph(model)
    longest = longest_source(model)
    axes = {0: Dim("batch"), 1: Dim("source", max=longest)}
    size = (TRACED["batch"], min(TRACED["source"], longest or TRACED["source"]))
    tokens = torch.full(size, model.config.eos_token_id)
    return _exported(graph, (tokens, torch.ones_like(tokens)), {"tokens": axes, "mask": axes})


@torch.no_grad()
def export_step(model: Model) -> ExportedProgram:
    """`StepGraph` by `torch.export`, for batches of any size."""
    graph, rows = StepGraph(model), TRACED["batch"]
    token, read = (torch.zeros(size, dtype=torch.long) for size in ((rows, 1), rows))
    dims = {name: Dim(name) for name in TRACED}
    every = {0: dims["batch"]}
    axes = [
        {axis: dims[name] for axis, name in named.items()}
        for part in graph.parts
        for named in part.axes()
    ]
    shapes = {"token": every, "read": every, "states": axes}
    return _exported(graph, (token, read, start_states(graph.parts)), shapes)


def start_states(parts: Sequence[Part], sizes: dict[str, int] = TRACED) -> list[Tensor]:
    """The tensors of `parts` before the first token, in other sizes: "batch", "source", "past"."""
    states = []
    for part in parts:
        for x, named in zip(part.tensors(part.start), part.axes(), strict=True):
            shape = [sizes[named[i]] if i in named else size for i, size in enumerate(x.shape)]
            states.append(
                x.flatten()[:1].expand(shape).clone() if x.numel() else x.new_zeros(shape)
            )
    return states


@contextmanager
def _quiet() -> Iterator[None]:
    """Leaves out what torch and onnx_ir log and warn of about their own code."""
    levels = {log: log.level for log in map(logging.getLogger, LOGS)}
    for log in levels:
        log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for log, level in levels.items():
            log.setLevel(level)


def _exported(graph: nn.Module, inputs: tuple[Any, ...], axes: dict[str, Any]) -> ExportedProgram:
    with _quiet():
        return torch.export.export(graph.eval(), inputs, dynamic_shapes=axes)


def longest_source(model: Any) -> int | None:
    """The longest source, if there is a limit."""
    pools = (model.encoder.controls, model.decoder.cross_controls)
    return _longest(model.config.stack("encoder"), *pools)


def longest_target(model: Model) -> int | None:
    """How many tokens a decoder reads at most, if there is a limit."""
    if isinstance(model, BoundedDecoderForCausalLM):
        return _longest(None, [layer.self_attn.control for layer in model.model.layers])
    return _longest(model.config.stack("decoder"), model.decoder.causal_controls)


def _longest(stack: StackConfig | None, *pools: Any) -> int | None:
    limits: list[Any] = [control.max_length for pool in pools for control in pool or ()]
    if stack is not None and stack.positions == "learned":
        limits.append(stack.max_positions)
    return min((int(limit) for limit in limits if limit is not None), default=None)


def step_names(parts: Sequence[Part]) -> tuple[list[str], list[str]]:
    """The inputs and the outputs of the step."""
    inputs = [name for part in parts for name in part.names()]
    states = [name for part in parts if part.kind == STATE for name in part.names()]
    after = [f"next_{name}" for name in ("read", *states)]
    return ["token", "read", *inputs], ["log_probs", *after]


def description(model: Model) -> dict[str, Any]:
    """The content of onnx.json."""
    entries: dict[str, list[dict[str, Any]]] = {STATE: [], MEMORY: []}
    for part in StepGraph(model).parts:
        for name, x, axes in zip(part.names(), part.tensors(part.start), part.axes(), strict=True):
            shape = [axes.get(axis, size) for axis, size in enumerate(x.shape)]
            entry: dict[str, Any] = {
                "name": name,
                "shape": shape,
                "dtype": str(x.dtype).removeprefix("torch."),
            }
            entries[part.kind].append(entry)
            if part.kind == STATE:
                entry["start"] = _start(name, x)
    config = model.config
    limits = getattr(config, "generation_limits", None) or {}
    is_decoder = isinstance(model, BoundedDecoderForCausalLM)  # which may generate padding
    return {
        "is_encoder_decoder": config.is_encoder_decoder,
        "vocab_size": config.vocab_size,
        "pad_token_id": None if is_decoder else config.pad_token_id,
        "eos_token_id": config.eos_token_id,
        "decoder_start_token_id": getattr(config, "decoder_start_token_id", None),
        **{x: limits.get(x) for x in ("max_len_a", "max_len_b", "max_target_positions")},
        "min_new_tokens": model.generation_config.min_new_tokens or 0,
        "longest_source": longest_source(model) if config.is_encoder_decoder else None,
        "longest_target": longest_target(model),
        "states": entries[STATE],
        "memories": entries[MEMORY],
    }


def _start(name: str, x: Tensor) -> float | int | bool:
    """The number that a state is full of.

    Raises MemAttnError for a state of several numbers, as a control of your own may have.
    """
    if not x.numel():
        return 0
    first: float | int | bool = x.flatten()[0].item()
    if not x.eq(first).all():
        raise MemAttnError(
            f"ONNX graphs need states that begin with one number, but {name} has several"
        )
    return first
