"""First tokens and a window, exact, and slots into which spills what has left the window.

Our combination of sliding windows with ABC-MLP (Peng et al., "ABC: Attention with Bounded-memory
Control", section 3.3, A.1 and 4). After token t, counted from 0 without padding, the memory holds

    F first tokens        i < F, i <= t            key R_i k_i, value v_i
    W last tokens         i >= F, t - W < i <= t   key R_i k_i, value v_i
    M slots of the rest   F <= i <= t - W          K~ = sum phi_i (x) k_i, V~ = sum phi_i (x) v_i

with phi_i = alpha_i / sum_j alpha_j over the rest, and the rotation R_i of position i, if there is
one. Cross attention reads the memory after the last token, t = S - 1, with phi_im = 0 where token i
is not in part m of the rest: a rest of at most M tokens has a slot for each of them, so that it is
exact, and a longer one is divided into M parts of adjacent tokens, whose lengths differ by at most
one. One softmax runs over all that is written: over (R_t q_t) . (R_i k_i) D ** -0.5 and
q_t . K~_m D ** -0.5 + b, with a b for each head of keys. Write logits are computed from k_i, which
the window still holds when the token leaves.

A whole sequence is two attentions, merged by the logs of their sums: that of the window in blocks,
and the chunked form of ABC over the tokens W positions before.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import dropout as drop

from fairseq_memattn.attention.ops.abc import abc_step_sums, abc_write, write_one
from fairseq_memattn.attention.ops.blocks import take
from fairseq_memattn.attention.ops.common import (
    MemoryState,
    full_precision,
    is_written,
    mass_where,
    omit_padding,
    scaled,
    unless_padding,
)
from fairseq_memattn.attention.ops.heads import by_key_head, by_query_head, to_query_heads
from fairseq_memattn.attention.ops.rotary import Rotation
from fairseq_memattn.attention.ops.window import Packing, window_attention
from fairseq_memattn.attention.ops.window.chunked import Queue, Reach, SharedTokens, Window, attend


class Places(NamedTuple):
    """first: F, at least 0; window: W, at least 1; slots: M, at least 0."""

    first: int
    window: int
    slots: int


class SpillState(NamedTuple):
    """The memory after some prefix, batch first, of constant size.

    exact_keys, exact_values (B, G, F + W, D): in k's dtype, turned; the queue of the window, oldest
        first, is after the first tokens, which it holds until they leave it and nobody sees there
    slot_keys, slot_values (B, G, M, D) and log_mass (B, G or 1, M): as in `MemoryState`
    positions (B, W): of the tokens in the queue, which turn them back
    tokens (B,): the real tokens so far
    """

    exact_keys: Tensor
    exact_values: Tensor
    slot_keys: Tensor
    slot_values: Tensor
    log_mass: Tensor
    positions: Tensor
    tokens: Tensor

    @property
    def keys(self) -> Tensor:
        """(B, G, F + W + M, D), of all that a query can see."""
        return torch.cat([self.exact_keys.to(self.slot_keys.dtype), self.slot_keys], dim=2)

    @property
    def values(self) -> Tensor:
        """(B, G, F + W + M, D)."""
        return torch.cat([self.exact_values.to(self.slot_values.dtype), self.slot_values], dim=2)

    @property
    def memory(self) -> MemoryState:
        return MemoryState(self.slot_keys, self.slot_values, self.log_mass)

    def reorder(self, new_order: Tensor) -> "SpillState":
        """The rows new_order (B',) of the batch, which survive a beam step."""
        return type(self)(*(tensor.index_select(0, new_order) for tensor in self))

    @classmethod
    def empty(cls, k: Tensor, v: Tensor, places: Places) -> "SpillState":
        """Before the first token, shaped after k and v (B, G, S, D)."""
        batch, heads = k.shape[:2]
        size = places.first + places.window
        keys, values = (x.new_zeros(batch, heads, size, x.shape[3]) for x in (k, v))
        memory = MemoryState.empty(k, v, k.new_empty(batch, heads, 0, places.slots))
        counts = torch.zeros(batch, places.window + 1, dtype=torch.long, device=k.device)
        return cls(keys, values, *memory, counts[:, 1:], counts[:, 0])


class Slots(NamedTuple):
    """What is learned of the slots.

    write_logits: log alpha (B, G or 1, S, M) of keys (B, G, S, D), which are not turned
    bias: b, (G,); None is 0
    """

    write_logits: Callable[[Tensor], Tensor]
    bias: Tensor | None


@full_precision
def spill_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    places: Places,
    learned: Slots,
    *,
    causal: bool,
    rotation: Rotation | None = None,
    key_padding_mask: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Attention of the tokens of a sequence to one another, in time and memory linear in T.

    q: (B, H, T, D); k, v: (B, G, T, D), where G divides H; none of them turned
    causal: the memory of each query is that after its token. Otherwise the window is centred on the
        query, as in `window_attention`, and all tokens but the first F spill into the slots
    rotation: of the T positions; key_padding_mask: (B, T), True at padding, on either side
    dropout: of the weights of exact tokens

    Returns (B, H, T, D) in q's dtype, zeros at padding.
    """
    if causal:
        short = places
        if k.shape[2] <= places.window:  # nothing leaves it
            short = Places(places.first, k.shape[2], 0)
        start = SpillState.empty(k, v, short)
        inputs = (q, k, v, short, learned, start, rotation, key_padding_mask, dropout)
        return _advance(*inputs)[0]
    real = torch.ones_like(k[:, 0, :, 0], dtype=torch.bool)
    real = real if key_padding_mask is None else ~key_padding_mask
    first = real & (real.cumsum(dim=1) <= places.first)
    out = window_attention(
        *(_turned(q, rotation), _turned(k, rotation), v, Window(places.window)),
        causal=False,
        key_padding_mask=key_padding_mask,
        global_mask=first if places.first else None,
        max_global=places.first or None,
        dropout=dropout,
        log_sum=bool(places.slots),
    )
    if places.slots:
        out = _merged(
            out, *_read_slots(q, _spilled(k, v, learned.write_logits(k), first | ~real)), learned
        )
    return omit_padding(out, key_padding_mask).to(q.dtype)


@full_precision
def spill_step(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    places: Places,
    learned: Slots,
    state: SpillState | None,
    *,
    rotation: Rotation | None = None,
    key_padding_mask: Tensor | None = None,
) -> tuple[Tensor, SpillState]:
    """Continues causal attention by T >= 1 positions from a memory of constant size.

    Arguments as in `spill_attention`. state: None at the start. Returns the output (B, H, T, D) and
    the memory after the last position; the given state is not changed.
    """
    state = SpillState.empty(k, v, places) if state is None else state
    if k.shape[2] == 1:
        after = _push(k, v, places, learned, state, rotation, key_padding_mask)
        out = spill_read(q, after, places, learned, rotation=rotation)
        return omit_padding(out, key_padding_mask), after
    return _advance(q, k, v, places, learned, state, rotation, key_padding_mask, 0.0)


@full_precision
def spill_write(
    k: Tensor,
    v: Tensor,
    places: Places,
    log_alpha: Tensor,
    key_padding_mask: Tensor | None = None,
    *,
    in_parts: bool,
) -> SpillState:
    """The memory after a whole sequence, which `spill_read` reads.

    k, v: (B, G, S, D); log_alpha: (B, G or 1, S, M)
    in_parts: slot m is written by part m of the rest alone, as in cross attention
    """
    packing = Packing.of(k, key_padding_mask)
    k, v, log_alpha = (packing.pack(x) for x in (k, v, log_alpha))
    tokens, device = packing.real.sum(dim=(1, 2, 3)), k.device
    index = torch.arange(k.shape[2], device=device)
    queue = tokens.unsqueeze(1) - places.window + torch.arange(places.window, device=device)
    wanted = torch.cat(
        [torch.arange(places.first, device=device).expand(k.shape[0], -1), queue], dim=1
    )
    missing = ((wanted < 0) | (wanted >= tokens.unsqueeze(1)))[:, None, :, None]
    wanted = wanted.clamp(0, k.shape[2] - 1)
    keys, values = (take(x, wanted).masked_fill(missing, 0.0) for x in (k, v))
    stays = (index < places.first) | (index >= tokens.unsqueeze(1) - places.window)
    if in_parts:
        log_alpha = log_alpha.masked_fill(~_parts(index, tokens, places), -torch.inf)
    return SpillState(keys, values, *_spilled(k, v, log_alpha, stays), queue, tokens)


@full_precision
def spill_read(
    q: Tensor,
    state: SpillState,
    places: Places,
    learned: Slots,
    *,
    rotation: Rotation | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Every query over what the memory holds, in one softmax: (B, H, T, D) in q's dtype.

    rotation: of the queries. Zeros where nothing is written.
    """
    heads = state.exact_keys.shape[1]
    exact = by_key_head(scaled(_turned(q, rotation), None), heads)
    slots = by_key_head(scaled(q, None), heads)
    dtype = exact.dtype
    bias = 0.0 if learned.bias is None else learned.bias.to(dtype).view(-1, 1, 1)
    seen = torch.cat(
        [_holds_first(state, places), _queue_index(state, places) >= places.first], dim=1
    )
    logits = torch.cat(
        [
            exact @ state.exact_keys.to(dtype).transpose(2, 3)
            + mass_where(seen, dtype)[:, None, None],
            slots @ state.slot_keys.transpose(2, 3)
            + bias
            + mass_where(is_written(state.log_mass), dtype).unsqueeze(2),
        ],
        dim=3,
    )
    weights = logits.softmax(dim=3)
    to_exact, to_slots = weights.split([seen.shape[1], places.slots], dim=3)
    out = drop(to_exact, dropout) @ state.exact_values.to(dtype) + to_slots @ state.slot_values
    return by_query_head(out, q.shape[1]).to(q.dtype)


def _advance(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    places: Places,
    learned: Slots,
    state: SpillState,
    rotation: Rotation | None,
    key_padding_mask: Tensor | None,
    dropout: float,
) -> tuple[Tensor, SpillState]:
    """`spill_step` for any T, in blocks and chunks."""
    packing = Packing.of(k, key_padding_mask)
    turned = (packing.pack(_turned(x, rotation)) for x in (q, k))
    (q_turned, k_turned), (q, k, v) = turned, (packing.pack(x) for x in (q, k, v))
    first, window, _ = places
    length, real, device = k.shape[2], packing.real, k.device
    index = state.tokens.unsqueeze(1) + torch.arange(length, device=device)
    queue = Queue(
        torch.cat([state.exact_keys[:, :, first:], k_turned], dim=2),
        torch.cat([state.exact_values[:, :, first:], v], dim=2),
        torch.cat(
            [
                (_queue_index(state, places) >= first)[:, None, :, None],
                real & (index >= first)[:, None, :, None],
            ],
            dim=2,
        ),
    )
    added = real.sum(dim=(1, 2, 3))
    shared = _first_tokens(state, places, k_turned, v, index, added)
    out = attend(
        *(q_turned, queue, real, state.tokens, Window(window), Reach(window - 1, 0), None),
        shared=shared if first else None,
        dropout=dropout,
        log_sum=bool(places.slots),
    )
    memory = state.memory
    if places.slots:
        old = _back(state, places, min(window, length), rotation)
        leaving = torch.cat([old, k], dim=2)[:, :, :length]
        stays = ((index - window < first)[:, None, :, None]) | ~real
        log_alpha = learned.write_logits(leaving).masked_fill(stays, -torch.inf)
        read, memory, log_sum = abc_step_sums(
            *(q, leaving, queue.values[:, :, :length], log_alpha, memory)
        )
        out = _merged(out, read, log_sum, learned)
    newest = added.unsqueeze(1) + torch.arange(window, device=device)
    positions = _positions(index, rotation)[:, None, :, None]
    positions = torch.cat([state.positions[:, None, :, None], packing.pack(positions)], dim=2)
    after = SpillState(
        torch.cat([shared.keys, take(queue.keys, newest)], dim=2),
        torch.cat([shared.values, take(queue.values, newest)], dim=2),
        *memory,
        take(positions, newest)[:, 0, :, 0],
        state.tokens + added,
    )
    return packing.unpack(out).to(q.dtype), after


def _push(
    k: Tensor,
    v: Tensor,
    places: Places,
    learned: Slots,
    state: SpillState,
    rotation: Rotation | None,
    key_padding_mask: Tensor | None,
) -> SpillState:
    """The memory after one token of every row, (B, G, 1, D); that before it where it is padding."""
    index, k_turned = state.tokens.unsqueeze(1), _turned(k, rotation)
    shared = _first_tokens(state, places, k_turned, v, index, torch.ones_like(state.tokens))
    keys, values = (
        torch.cat([first, held[:, :, places.first + 1 :], new], dim=2)
        for first, held, new in zip(shared[:2], state[:2], (k_turned, v), strict=True)
    )
    memory = state.memory
    if places.slots:
        leaving = _back(state, places, 1, rotation)
        stays = (index - places.window < places.first)[:, None, :, None]
        log_alpha = learned.write_logits(leaving).masked_fill(stays, -torch.inf)
        value = state.exact_values[:, :, places.first : places.first + 1]
        memory = write_one(leaving, value, log_alpha, memory)
    positions = torch.cat([state.positions[:, 1:], _positions(index, rotation)], dim=1)
    after = SpillState(keys, values, *memory, positions, state.tokens + 1)
    return after if key_padding_mask is None else unless_padding(key_padding_mask, after, state)


def _turned(x: Tensor, rotation: Rotation | None) -> Tensor:
    return x if rotation is None else rotation.turn(x)


def _positions(index: Tensor, rotation: Rotation | None) -> Tensor:
    """(B, T): those of the rotation, before packing, or else the index (B, T) of each token."""
    return index if rotation is None else rotation.positions.expand(index.shape)


def _back(state: SpillState, places: Places, count: int, rotation: Rotation | None) -> Tensor:
    """The oldest keys of the queue, turned back."""
    keys = state.exact_keys[:, :, places.first : places.first + count]
    if rotation is None:
        return keys
    return rotation.at(state.positions[:, :count]).back().turn(keys)


def _queue_index(state: SpillState, places: Places) -> Tensor:
    """(B, W): which token each entry of the queue holds; negative if none."""
    entries = torch.arange(places.window, device=state.tokens.device) - places.window
    return state.tokens.unsqueeze(1) + entries


def _holds_first(state: SpillState, places: Places) -> Tensor:
    """(B, F): which of the first tokens there are."""
    entries = torch.arange(places.first, device=state.tokens.device)
    return entries < state.tokens.unsqueeze(1)


def _first_tokens(
    state: SpillState, places: Places, k: Tensor, v: Tensor, index: Tensor, added: Tensor
) -> SharedTokens:
    """The first F tokens after T more, and by which of these they are seen.

    k, v: (B, G, T, D), packed; index: (B, T); added: (B,), how many of the T are real
    """
    entries = torch.arange(places.first, device=index.device)
    place = entries - state.tokens.unsqueeze(1)
    is_new = ((place >= 0) & (place < added.unsqueeze(1)))[:, None, :, None]
    place = place.clamp(0, k.shape[2] - 1)
    keys, values = (
        torch.where(is_new, take(new, place), held[:, :, : places.first])
        for new, held in ((k, state.exact_keys), (v, state.exact_values))
    )
    return SharedTokens(keys, values, (entries <= index.unsqueeze(2)).unsqueeze(1))


def _parts(index: Tensor, tokens: Tensor, places: Places) -> Tensor:
    """(B, 1, S, M): which tokens of a source are in the part of each slot; tokens: (B,)"""
    slots = torch.arange(places.slots, device=index.device)
    rest = (tokens - places.first - places.window).clamp_min(max(places.slots, 1))
    part = (index - places.first) * places.slots // rest.unsqueeze(1)
    return (part.unsqueeze(2) == slots).unsqueeze(1)


def _spilled(k: Tensor, v: Tensor, log_alpha: Tensor, stays: Tensor) -> MemoryState:
    """The slots after all tokens but those of stays (B or 1, S)."""
    if not log_alpha.shape[3]:
        return MemoryState.empty(k, v, log_alpha)
    return abc_write(k, v, log_alpha.masked_fill(stays.view(-1, 1, k.shape[2], 1), -torch.inf))


def _read_slots(q: Tensor, memory: MemoryState) -> tuple[Tensor, Tensor]:
    """What q reads of the slots alone, and the log of the sum of exp(logit) (B, H, T)."""
    logits = by_key_head(scaled(q, None), memory.keys.shape[1]) @ memory.keys.transpose(2, 3)
    logits = logits + mass_where(is_written(memory.log_mass), logits.dtype).unsqueeze(2)
    out = torch.cat([logits.softmax(3) @ memory.values, logits.logsumexp(3, keepdim=True)], dim=3)
    out = by_query_head(out, q.shape[1])
    return out[..., :-1], out[..., -1]


def _merged(exact: Tensor, slots: Tensor, log_sum: Tensor, learned: Slots) -> Tensor:
    """One softmax over what two attentions see.

    exact: (B, H, T, D + 1), the last column is the log of its sum; log_sum: (B, H, T), of the slots
    """
    if learned.bias is not None:
        bias = to_query_heads(learned.bias.view(1, -1, 1), log_sum.shape[1])
        log_sum = log_sum + bias.to(log_sum.dtype)
    share = torch.sigmoid(log_sum.unsqueeze(3) - exact[..., -1:])
    return torch.lerp(exact[..., :-1], slots.to(share.dtype), share)
