"""A simple implementation of causal ABC in chunks, a contender of `attention_training.py`.

It computes the same function as `fairseq_memattn.attention.abc_attention` with the same linear
cost. It is vectorised over the chunks, and stable for all write logits. It has no backward pass of
its own, and no factored write weights.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

CHUNK_SIZE = 16


def plain_chunked_attention(q: Tensor, k: Tensor, v: Tensor, log_alpha: Tensor) -> Tensor:
    """q, k, v: (B, H, T, D); log_alpha: (B, H, T, M), finite; T a multiple of `CHUNK_SIZE`."""
    q, k, v, s = (x.unflatten(2, (-1, CHUNK_SIZE)) for x in (q, k, v, log_alpha))
    z = log_alpha.logcumsumexp(dim=2).unflatten(2, (-1, CHUNK_SIZE))
    after = z[:, :, :, -1]
    before = pad(after[:, :, :-1], (0, 0, 1, 0), value=-torch.inf)
    future = torch.ones(CHUNK_SIZE, CHUNK_SIZE, dtype=torch.bool, device=q.device).triu(1)

    write = (s - after.unsqueeze(3)).exp().transpose(3, 4)
    decay = (before - after).exp().unsqueeze(4)
    keys, values = _memories(decay, write @ k), _memories(decay, write @ v)

    # Weight of token j at position t in slot m; masked before the exponential.
    exponents = s.unsqueeze(3) - z.unsqueeze(4)
    pairs = exponents.masked_fill(future.unsqueeze(2), -torch.inf).exp()
    rest = (before.unsqueeze(3) - z).exp()

    q = q * q.shape[-1] ** -0.5
    scores = q @ k.transpose(3, 4)
    logits = rest * (q @ keys.transpose(3, 4)) + (scores.unsqueeze(5) * pairs).sum(dim=4)
    reading = logits.softmax(dim=-1)
    weights = (pairs * reading.unsqueeze(4)).sum(dim=5)
    return ((reading * rest) @ values + weights @ v).flatten(2, 3)


def _memories(decay: Tensor, updates: Tensor) -> Tensor:
    """The normalised memory before each chunk. decay: (B, H, L, M, 1); updates: (B, H, L, M, D)."""
    memory = torch.zeros_like(updates[:, :, 0])
    memories = []
    for d, update in zip(decay.unbind(2), updates.unbind(2), strict=True):
        memories.append(memory)
        memory = d * memory + update
    return torch.stack(memories, dim=2)
