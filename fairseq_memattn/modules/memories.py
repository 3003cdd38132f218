"""The control vectors and read weights of a trained model for a text."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fairseq_memattn.attention.controls import KERNEL_ATTENTION, Tokens
from fairseq_memattn.attention.controls.base import unit_values
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


def attentions(model: nn.Module) -> dict[str, list[ABCAttention]]:
    """The attentions of a model that have a bounded memory, by kind, the lowest layer first.

    The kinds that the model has come in the order of `KINDS`.
    """
    found: dict[str, list[ABCAttention]] = {kind: [] for kind in KINDS}
    for name, module in model.named_modules():
        if isinstance(module, ABCAttention):
            found[_kind(name, module)].append(module)
    return {kind: layers for kind, layers in found.items() if layers}


def _kind(name: str, attention: ABCAttention) -> str:
    if attention.causal:
        return "causal"
    return "cross" if name.endswith("encoder_attn") else "encoder"  # fairseq's names


def memories_of(
    model: nn.Module, net_input: dict[str, Any], layers: list[ABCAttention]
) -> list[Memory]:
    """The memories of some of a model's attentions for a batch of one text without padding.

    net_input: what the model's forward pass takes; layers: of `attentions(model)`

    Raises MemAttnError for kernel attention, which has features and no slots.
    """
    if any(attention.control.is_kernel for attention in layers):
        raise MemAttnError(
            f"kernel attention ({', '.join(KERNEL_ATTENTION)}) has features in the place of slots, "
            "and no control vectors that a softmax reads"
        )
    found: dict[nn.Module, Memory] = {}
    # Within the forward pass, because layers may share values that do not outlive it.
    handles = [
        attention.register_forward_pre_hook(
            lambda module, args, kwargs: found.update({module: _memory(module, kwargs)}),
            with_kwargs=True,
        )
        for attention in layers
    ]
    model.eval()
    with torch.no_grad():
        model(**net_input)
    for handle in handles:
        handle.remove()
    return [found[attention] for attention in layers]


def _memory(attention: ABCAttention, given: dict[str, Any]) -> Memory:
    """given: the arguments of the attention's forward pass, with B = 1"""
    query, key = batch_first(given["query"]), batch_first(given["key"])
    if attention.causal:
        writing, reading = _causal(attention, key)
    elif attention.control.is_centred:
        writing, reading = _centred(attention, key)
    else:
        tokens = attention.tokens(key, given["key_padding_mask"])
        writing, reading = attention.inspect(query, tokens)
    heads = attention.num_heads
    return Memory(*(tensor.expand(-1, heads, -1, -1)[0] for tensor in (writing, reading)))


def _causal(attention: ABCAttention, x: Tensor) -> tuple[Tensor, Tensor]:
    """phi (1, H, T, M) of the memory after the last token, and p (1, H, T, M) after each.

    A memory whose values are unit vectors holds its own control vectors. `Control.vectors` would
    differ: over a whole sequence, clustering groups the tokens in another way.
    """
    q, k, v = attention.project(x, x)
    control, length = attention.control, x.shape[1]
    held = [
        control.step(q, k, units, Tokens(x), None)[1].values for units in unit_values(length, v)
    ]
    state, reading = None, []
    for t in range(length):
        now = slice(t, t + 1)
        _, state = control.step(q[:, :, now], k[:, :, now], v[:, :, now], Tokens(x[:, now]), state)
        reading.append(control.weights(q[:, :, now], state))
    return torch.cat(held, dim=3)[..., :length].transpose(2, 3), torch.cat(reading, dim=2)


def _centred(attention: ABCAttention, x: Tensor) -> tuple[Tensor, Tensor]:
    """Windows around each token share no memory: every token is a slot, (1, H, T, T)."""
    q, k, v = attention.project(x, x)
    length = x.shape[1]
    units = unit_values(length, v)
    reading = [attention.control.attend(q, k, piece, Tokens(x), causal=False) for piece in units]
    writing = torch.eye(length, dtype=v.dtype, device=v.device)[None, None]
    return writing, torch.cat(reading, dim=3)[..., :length]
