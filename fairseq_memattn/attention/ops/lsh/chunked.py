"""Attention by locality-sensitive hashing, with GMAT's global memory.

Sources: Kitaev, Kaiser and Levskaya, "Reformer: The Efficient Transformer", section 2 and
appendix A; Gupta and Berant, "GMAT: Global Memory Augmentation for Transformers", section 3.1 and
equation 3. Queries and keys are shared: a key is its query divided by its length. Each of several
rounds hashes tokens into buckets by random rotations, sorts them by bucket and, within a bucket, by
position, and cuts the sorted sequence into chunks of C. A token sees the tokens of its own bucket
that are in its own chunk or in the chunk before. It sees itself only if it sees nothing else.

Reformer divides the weight of a pair in each round by the number of rounds in which the pair meets.
Combined by their normalisers, the rounds are then one softmax over all tokens that a token sees in
any round. Here a pair counts in the first round in which it meets and in no other, which gives the
same sum. The memory is one more round, in which every token sees all of it, so that it counts once.
"""

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import dropout as drop
from torch.nn.functional import pad
from torch.utils.checkpoint import checkpoint

from fairseq_memattn.attention.ops import check
from fairseq_memattn.attention.ops.blocks import blocks, joined, lengthen, take
from fairseq_memattn.attention.ops.common import (
    EMPTY,
    accumulation_dtype,
    full_precision,
    omit_padding,
    on_device,
    scaled,
    unit_vectors,
)
from fairseq_memattn.attention.ops.global_memory.chunked import attend_to_all, check_inputs

# Subtracted from a token's logit with itself: far above any logit, and far from `EMPTY`.
SELF_PENALTY = 1e5


@full_precision
def lsh_memory_attention(
    qk: Tensor,
    v: Tensor,
    q_mem: Tensor,
    k_mem: Tensor,
    v_mem: Tensor,
    *,
    chunk_size: int = 64,
    rounds: int = 8,
    buckets: int | None = None,
    generator: torch.Generator | None = None,
    key_padding_mask: Tensor | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Attention of hashed tokens and a memory, in time and memory O(S (R C + M)).

    qk: (B, H, S, D), the queries; divided by their lengths, they are the keys. A length below 1e-3
        counts as 1e-3 (a choice), which bounds the gradients
    v: (B, H, S, D)
    q_mem, k_mem, v_mem: (B, H, M, D); M may be 0. With a q_mem of (B, H, 0, D) only the tokens'
        attention is computed. The keys of the memory are divided by their lengths too, because
        longer ones would dominate the joint softmax (a choice). A memory token sees all memory
        tokens, itself included, and all tokens
    chunk_size: C, Reformer's m
    rounds: R, of hashing
    buckets: of each round, an even number; None is 2 S / C, as in Reformer. That depends on the
        longest sequence in the batch: give a number where padding must not change a result, or
        where hashing must not take O(S^2 / C)
    generator: of the random rotations; None is torch's default. Its state at the call, the sizes
        and `qk` determine the buckets
    key_padding_mask: (B, S), True at padding, which may be anywhere and is sorted behind all tokens
    scale: of the logits; None is D ** -0.5
    dropout: of the attention weights

    Returns the output of the tokens, (B, H, S, D), zeros at padding, and that of the memory,
    (B, H, M, D), both in v's dtype. The backward pass computes the weights of each round again.

    Raises ValueError for shapes that do not fit together, for sizes below 1 and for an odd number
    of `buckets`.
    """
    memory_tokens = {"q_mem": q_mem, "k_mem": k_mem, "v_mem": v_mem}
    check_inputs({"qk": qk, "v": v}, memory_tokens, key_padding_mask)
    check.least(1, chunk_size=chunk_size)
    length, dtype = qk.shape[2], accumulation_dtype(v)
    keys, memory_keys = (unit_vectors(x.to(dtype)) for x in (qk, k_mem))
    values, memory_values = v.to(dtype), v_mem.to(dtype)
    if buckets is None:
        buckets = 2 * -(-length // chunk_size)
    bucket = lsh_buckets(keys, buckets, rounds, generator)
    if key_padding_mask is not None:
        bucket = bucket.masked_fill(key_padding_mask[:, None, None], buckets)
    chunk = min(chunk_size, length)
    # Padding, and the filling of the last chunk, have a bucket of their own behind all tokens.
    bucket = pad(bucket, (0, -length % chunk), value=buckets)

    queries = scaled(qk, scale)
    sums = list(_hashed_rounds(queries, keys, values, bucket, chunk, dropout))
    if k_mem.shape[2]:
        logits = queries @ memory_keys.transpose(2, 3)
        sums.append(_read(logits, memory_values, dropout))
    outs, log_masses = (torch.stack(parts) for parts in zip(*sums, strict=True))
    out = omit_padding((log_masses.softmax(dim=0) * outs).sum(dim=0), key_padding_mask)
    memory_queries = q_mem.to(dtype)
    memory = attend_to_all(
        memory_queries, keys, values, memory_keys, memory_values, key_padding_mask, scale, dropout
    )
    return out.to(v.dtype), memory.to(v.dtype)


def lsh_buckets(
    x: Tensor, buckets: int, rounds: int, generator: torch.Generator | None = None
) -> Tensor:
    """argmax [x R; -x R] for random R: vectors of similar directions often share a bucket.

    x: (B, H, S, D); the lengths of the vectors have no effect. Every call draws new rotations R
    for each head and round, which all rows of the batch share.

    Returns integers (B, H, rounds, S), from 0 to buckets - 1.

    Raises TypeError for what is no tensor, and ValueError for one of integers or of other axes, for
    `rounds` below 1, and for `buckets` below 2 or odd.
    """
    check.tensors(x=x)
    if x.dim() != 4:
        raise ValueError(f"`x` must be (B, H, S, D), but is {tuple(x.shape)} instead.")
    check.least(1, rounds=rounds)
    if buckets < 2 or buckets % 2:
        raise ValueError(f"`buckets` must be even and at least 2, but is {buckets} instead.")
    rotations = torch.randn(
        (x.shape[1], rounds, x.shape[3], buckets // 2),
        generator=generator,
        device=x.device if generator is None else generator.device,
    )
    if rotations.device != x.device:
        rotations = on_device(rotations, x.device)
    of_rounds = rotations.to(x.dtype).unbind(1)
    return torch.stack([_bucket(x.detach() @ rotation) for rotation in of_rounds], dim=2)


def _bucket(rotated: Tensor) -> Tensor:
    """argmax [x R; -x R] of x R (B, H, S, buckets / 2), without the larger tensor."""
    (highest, first), (lowest, second) = rotated.max(dim=3), rotated.min(dim=3)
    return torch.where(highest >= -lowest, first, second + rotated.shape[3])


# The weighted mean of some keys' values, and the logarithm of the keys' normaliser.
_Sums = tuple[Tensor, Tensor]


def _hashed_rounds(
    q: Tensor, k: Tensor, v: Tensor, bucket: Tensor, chunk: int, dropout: float
) -> Iterator[_Sums]:
    """The sums of each round over the pairs that meet in no round before it.

    q, k, v: (B, H, S, D); bucket: (B, H, R, S and what fills the last chunk)
    """
    heads, length = q.shape[:2], q.shape[2]
    # Every head of every sequence is sorted separately.
    q, k, v = (x.flatten(0, 1).unsqueeze(1) for x in (q, k, v))
    q, k, v = (lengthen(x, bucket.shape[3] - length) for x in (q, k, v))
    bucket = bucket.flatten(0, 1)
    order = bucket.argsort(dim=2, stable=True)
    place = order.argsort(dim=2)
    # Buckets and chunks never decrease along the sorted sequence. So addresses differ by 0 or 1 if
    # and only if two tokens share a bucket and the key's chunk is the query's or the one before.
    address = (2 * bucket + place // chunk).int()
    for r in range(bucket.shape[1]):
        addresses = take(address[:, : r + 1].unsqueeze(3), order[:, r])
        sums = checkpoint(
            partial(_attend_sorted, itself=r == 0, dropout=dropout),
            *(q, k, v, order[:, r], place[:, r], _first_met(blocks(addresses, chunk))),
            use_reentrant=False,
            preserve_rng_state=dropout > 0,
        )
        out, log_mass = (x[:, 0, :length].unflatten(0, heads) for x in sums)
        yield out, log_mass


def _first_met(address: Tensor) -> Tensor:
    """Which pairs meet in the last round and in no round before it.

    address: (N, L, R, C, 1), of the rounds up to the last, in the order of the last

    Returns (N, L, 1, C, keys).
    """
    others = _with_previous(address).transpose(3, 4)
    last = address.shape[2] - 1
    seen = _meet(address, others, last)
    for r in range(last):
        seen &= ~_meet(address, others, r)
    return seen


def _meet(address: Tensor, others: Tensor, r: int) -> Tensor:
    distance = address[:, :, r : r + 1] - others[:, :, r : r + 1]
    return (distance == 0) | (distance == 1)


def _with_previous(x: Tensor) -> Tensor:
    """(N, L, X, C, Y) as (N, L, X, 2 C, Y): each chunk behind the one before it.

    The last chunk stands before the first; its addresses are too high to meet any. A single chunk
    has no chunk before it.
    """
    return x if x.shape[1] == 1 else torch.cat([x.roll(1, dims=1), x], dim=3)


def _attend_sorted(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    order: Tensor,
    place: Tensor,
    seen: Tensor,
    *,
    itself: bool,
    dropout: float,
) -> _Sums:
    """One round. q, k, v: (N, 1, S, D); order: (N, S), the tokens as sorted; place: its inverse."""
    chunk = seen.shape[3]
    q, k, v = (blocks(take(x, order), chunk) for x in (q, k, v))
    k, v = _with_previous(k), _with_previous(v)
    logits = q @ k.transpose(3, 4)
    if itself:
        penalty = logits.new_zeros(logits.shape[3:])
        penalty.diagonal(logits.shape[4] - chunk).fill_(SELF_PENALTY)
        logits = logits - penalty
    sums = _read(logits.masked_fill(~seen, EMPTY), v, dropout)
    out, log_mass = (take(joined(x, order.shape[1]), place) for x in sums)
    return out, log_mass


def _read(logits: Tensor, v: Tensor, dropout: float) -> _Sums:
    """logits (*, T, S) and values (*, S, D) to the sums (*, T, D) and (*, T, 1)."""
    weights = logits.softmax(dim=-1)
    # The largest weight is that of the largest logit. `logsumexp` would take ten times as long,
    # because its exponentials underflow for all hidden keys.
    log_mass = logits.amax(dim=-1, keepdim=True) - weights.amax(dim=-1, keepdim=True).log()
    return drop(weights, dropout) @ v, log_mass
