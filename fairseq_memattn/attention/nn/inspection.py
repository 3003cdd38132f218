"""Control vectors and read weights of causal attention, and of windows around each token."""

import torch
from torch import Tensor

from fairseq_memattn.attention.controls.base import Control, Tokens, unit_values


def after_each_token(
    control: Control, q: Tensor, k: Tensor, v: Tensor, tokens: Tokens
) -> tuple[Tensor, Tensor]:
    """phi (B, G, T, M) of the memory after the last token, and p (B, H, T, M) after each.

    A memory whose values are unit vectors holds its own control vectors. `Control.vectors` would
    differ: over a whole sequence, clustering groups the tokens in another way.
    """
    length, tokens = k.shape[2], tokens._replace(shared=None)
    held = [control.step(q, k, units, tokens, None)[1].values for units in unit_values(length, v)]
    state, reading = None, []
    for t in range(length):
        now = slice(t, t + 1)
        one = _part(tokens, now)
        _, state = control.step(q[:, :, now], k[:, :, now], v[:, :, now], one, state)
        rotation = {"rotation": one.rotation} if control.rotates else {}
        reading.append(control.weights(q[:, :, now], state, **rotation))
    return torch.cat(held, dim=3)[..., :length].transpose(2, 3), torch.cat(reading, dim=2)


def around_each_token(
    control: Control, q: Tensor, k: Tensor, v: Tensor, tokens: Tokens
) -> tuple[Tensor, Tensor]:
    """Windows around each token share no memory: every token is a slot, (1, 1 or H, T, T)."""
    length = k.shape[2]
    reading = [control.attend(q, k, u, tokens, causal=False) for u in unit_values(length, v)]
    writing = torch.eye(length, dtype=v.dtype, device=v.device)[None, None]
    return writing, torch.cat(reading, dim=3)[..., :length]


def _part(tokens: Tokens, now: slice) -> Tokens:
    """Some of the tokens."""
    mask, rotation = tokens.key_padding_mask, tokens.rotation
    return tokens._replace(
        x=tokens.x[:, now],
        key_padding_mask=None if mask is None else mask[:, now],
        rotation=None if rotation is None else rotation.at(rotation.positions[:, now]),
    )
