"""A tiny model and a batch of every family, for tests that hold for all of them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import abc_models
import test_gmat
import test_t5mem
import torch
from test_genbert import genbert


class TinyModel(NamedTuple):
    """build: makes the model; net_input: makes the arguments of its forward pass."""

    build: Callable[[], torch.nn.Module]
    net_input: Callable[[], dict[str, Any]]


def words() -> dict[str, Any]:
    return {"src_tokens": test_gmat.rows(11, 6)}


def pairs() -> dict[str, Any]:
    source, target = test_gmat.rows(9, 5, left=True), test_gmat.rows(6, 4)
    return {"src_tokens": source, "src_lengths": None, "prev_output_tokens": target}


def text() -> dict[str, Any]:
    return {"src_tokens": test_gmat.rows(9, 5)}


def _of_kind(make: Callable[..., torch.nn.Module], kind: str) -> Callable[[], torch.nn.Module]:
    return lambda: make(kind, dropout=0.1)


TINY_MODELS = (
    {f"gmat_bert, {k}": TinyModel(_of_kind(test_gmat.bert, k), words) for k in test_gmat.KINDS}
    | {
        f"gmat_transformer, {k}": TinyModel(_of_kind(test_gmat.translator, k), pairs)
        for k in test_gmat.DECODERS
    }
    | {"gmat_genbert": TinyModel(_of_kind(genbert, "untied"), pairs)}
    | {"t5": TinyModel(lambda: test_gmat.build("t5", dropout=0.1), pairs)}
    | {
        arch: TinyModel(lambda arch=arch: abc_models.translator(arch), pairs)
        for arch in abc_models.TRANSLATORS
    }
    | {
        f"{arch}, {name}": TinyModel(
            lambda arch=arch, options=options: abc_models.translator(arch, **options), pairs
        )
        for arch, name, options in abc_models.VARIANTS
    }
    | {
        arch: TinyModel(lambda arch=arch: abc_models.language_model(arch), text)
        for arch in abc_models.LANGUAGE_MODELS
    }
    | {"abc_llama": TinyModel(lambda: abc_models.language_model("abc_llama"), text)}
    | {
        arch: TinyModel(lambda arch=arch: abc_models.roberta(arch), words)
        for arch in abc_models.ROBERTAS
    }
    | {k: TinyModel(_of_kind(test_t5mem.build, k), test_t5mem.batch) for k in test_t5mem.MODELS}
)
