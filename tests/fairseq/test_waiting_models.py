"""No model waits for a GPU in code of this package, in training and in decoding."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fairseq
import pytest
import torch
from full import others_in_full
from tiny_models import TINY_MODELS
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.testing import assert_close
from torch.utils._pytree import tree_map_only
from waiting import META, kernels, on_no_gpu

from fairseq_memattn.attention import MemoryState, use_backend
from fairseq_memattn.attention.ops import common
from fairseq_memattn.modules.abc_attention import CrossMemory

FAIRSEQ, TORCH = (f"{Path(package.__file__).parent}/" for package in (fairseq, torch))
# The attention of each control is tested without fairseq; one control is one that has a limit.
OF_CONTROLS = ("abc_", "elu_", "rfa_", "t2r_")
CHOSEN = ("abc_mlp_transformer", "abc_linformer_transformer", "abc_local_global_roberta")
MODELS = [name for name in TINY_MODELS if name.startswith(CHOSEN) or name[:4] not in OF_CONTROLS]
OTHERS = [
    *(
        "gmat_bert, no memory",
        "gmat_bert, untied",
        "gmat_bert, untied lsh",
        "gmat_bert, compressed",
    ),
    *("abc_linformer_transformer", "abc_linformer_transformer_lm", "gmat_bert, lsh"),
    *("gmat_bert, compressed untied", "gmat_transformer, softmax", "gmat_transformer, abc"),
    *("abc_mlp_transformer, heads share", "t5mem_v1", "t5mem_v2", "t5mem_v3", "t5mem_ws"),
]
DECODERS = [name for name in MODELS if "bert" not in name or "gen" in name]
LANGUAGE_MODELS = [name for name in MODELS if name.endswith("_lm")]


def some(names: list[str]) -> list[object]:
    return others_in_full(names, [name for name in names if name not in OTHERS])


@pytest.fixture(autouse=True)
def by_kernels():
    with kernels():
        yield


class FairseqAsks(TorchFunctionMode):
    """fairseq itself asks whether there is any padding. The answer is yes."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if function is Tensor.__bool__ and args[0].is_meta and caller().startswith(FAIRSEQ):
            return True
        return function(*args, **(kwargs or {}))


def caller() -> str:
    """The file of the innermost function that is neither torch's nor of this module."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename.startswith((TORCH, __file__)):
        assert frame.f_back is not None
        frame = frame.f_back
    return frame.f_code.co_filename


@contextmanager
def no_waiting() -> Iterator[None]:
    with on_no_gpu(), FairseqAsks():
        yield


def placed(name: str, *, training: bool) -> tuple[torch.nn.Module, dict[str, Any]]:
    build, net_input = TINY_MODELS[name]
    model = build().to(META).train(training)
    inputs = tree_map_only(Tensor, lambda x: x.to(META), net_input())
    with FairseqAsks():
        model(**inputs)  # fairseq copies its tables of positions once
    return model, inputs


@pytest.mark.parametrize("name", some(MODELS))
def test_training(name):
    model, inputs = placed(name, training=True)
    with no_waiting():
        out, _ = model(**inputs)
        out.sum().backward()


@pytest.mark.parametrize("name", some(DECODERS))
def test_decoding(name):
    """A beam of two, reordered after each step."""
    model, inputs = placed(name, training=False)
    tokens = inputs.pop("prev_output_tokens", inputs.get("src_tokens"))
    order = torch.zeros(len(tokens), dtype=torch.long, device=META)
    state: dict[str, Any] = {}
    with no_waiting(), torch.no_grad():
        given = ()
        if hasattr(model, "encoder"):
            encoder_out = model.encoder(**inputs)
            given = (model.encoder.reorder_encoder_out(encoder_out, order),)
        for length in (1, 2, 3):
            model.decoder(tokens[:, :length], *given, incremental_state=state)
            model.decoder.reorder_incremental_state_scripting(state, order)


@pytest.mark.parametrize("name", LANGUAGE_MODELS)
def test_reading_on(name):
    model, inputs = placed(name, training=False)
    state: dict[str, Any] = {}
    with no_waiting(), torch.no_grad():
        for start in (0, 9):
            model.decoder.read_on(inputs["src_tokens"], state, start)


# --- What a GPU computes in the place of asking


@pytest.mark.parametrize("name", MODELS)
def test_the_results_are_the_same(name, monkeypatch):
    build, net_input = TINY_MODELS[name]
    model, inputs = build(), net_input()
    with torch.no_grad(), use_backend("chunked"):
        expected, _ = model(**inputs)
        monkeypatch.setattr(common, "IMMEDIATE", set())
        actual, _ = model(**inputs)
    assert_close(actual, expected)


def test_absent_sequences_in_front_stay(monkeypatch):
    build, net_input = TINY_MODELS["t5mem_v3"]
    model, inputs = build(), net_input()
    inputs["context_tokens"][:, 0] = 1
    with torch.no_grad():
        expected, _ = model(**inputs)
        monkeypatch.setattr(common, "IMMEDIATE", set())
        actual, extra = model(**inputs)
    assert_close(actual, expected)
    assert extra["selection"][0].shape[2] == 1 + inputs["context_tokens"].shape[1]


def test_hypotheses_of_a_sentence_stay_adjacent(monkeypatch):
    memory = torch.arange(3.0)[:, None, None, None]
    state = CrossMemory(MemoryState(memory, memory, memory[..., 0]), copies=2, phi=None)
    order = torch.tensor([3, 2, 5, 5])
    expected = state.reorder(*state.sentences(order))
    monkeypatch.setattr(common, "IMMEDIATE", set())
    actual = state.reorder(*state.sentences(order))
    assert (actual.copies, actual.state.keys.flatten().tolist()) == (2, [1, 2])
    assert_close(actual.state, expected.state)
    with pytest.raises(RuntimeError, match="hypotheses of a sentence must be adjacent"):
        state.sentences(torch.tensor([3, 1, 5, 5]))
