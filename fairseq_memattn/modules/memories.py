"""The control vectors and read weights of a trained model for a text."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fairseq_memattn.attention import nn as layers
from fairseq_memattn.attention.controls import KERNEL_ATTENTION
from fairseq_memattn.attention.controls.softmax import SoftmaxControl
from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.modules.abc_attention import ABCAttention
from fairseq_memattn.modules.layout import batch_first

KINDS = ("cross", "encoder", "causal")


class Memory(NamedTuple):
    """The memory of one attention, of one text.

    writing: phi (H, S, M), the share of each token in each slot after the last token
    reading: p (H, T, M), the weight of each slot for each query; in causal attention, of the
        slots right after the query's own token
    """

    writing: Tensor
    reading: Tensor


def attentions(model: nn.Module) -> dict[str, list[layers.ABCAttention]]:
    """The attentions of a model that have a bounded memory, by kind, the lowest layer first.

    The kinds that the model has come in the order of `KINDS`.
    """
    found: dict[str, list[layers.ABCAttention]] = {kind: [] for kind in KINDS}
    for name, module in model.named_modules():
        is_bounded = isinstance(module, layers.ABCAttention)
        if is_bounded and not isinstance(module.control, SoftmaxControl):
            found[_kind(name, module)].append(module)
    return {kind: layers for kind, layers in found.items() if layers}


def _kind(name: str, attention: layers.ABCAttention) -> str:
    if attention.causal:
        return "causal"
    return "cross" if name.endswith("encoder_attn") else "encoder"  # fairseq's names


def memories_of(
    model: nn.Module, net_input: dict[str, Any], chosen: list[layers.ABCAttention]
) -> list[Memory]:
    """The memories of some of a model's attentions for a batch of one text without padding.

    net_input: what the model's forward pass takes; chosen: of `attentions(model)`

    Raises MemAttnError for kernel attention, which has features and no slots.
    """
    if any(attention.control.is_kernel for attention in chosen):
        raise MemAttnError(
            f"kernel attention ({', '.join(KERNEL_ATTENTION)}) has features in the place of slots, "
            "and no control vectors that a softmax reads"
        )
    found: dict[nn.Module, Memory] = {}
    # Within the forward pass, because layers may share values that do not outlive it.
    handles = [
        attention.register_forward_pre_hook(
            lambda module, args, kwargs: found.update({module: _memory(module, args, kwargs)}),
            with_kwargs=True,
        )
        for attention in chosen
    ]
    model.eval()
    with torch.no_grad():
        model(**net_input)
    for handle in handles:
        handle.remove()
    return [found[attention] for attention in chosen]


def _memory(attention: layers.ABCAttention, args: Any, given: dict[str, Any]) -> Memory:
    """args, given: the arguments of the attention's forward pass, with B = 1"""
    mask = given["key_padding_mask"]
    if isinstance(attention, ABCAttention):
        query, key = batch_first(given["query"]), batch_first(given["key"])
        source = attention.tokens(key, mask)
    else:
        query = args[0]
        source = attention.tokens(query, mask, positions=given.get("positions"))
    inspected, heads = attention.inspect(query, source), attention.num_heads
    return Memory(*(tensor.expand(-1, heads, -1, -1)[0] for tensor in inspected))
