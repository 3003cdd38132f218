"""Clusters of keys, and of the values with them (ABC paper, section 3.2)."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from fairseq_memattn.attention.controls.base import NormalisedControl, Tokens, drop_writes
from fairseq_memattn.attention.controls.options import ControlOptions, Sizes, option
from fairseq_memattn.attention.controls.registry import register_control
from fairseq_memattn.attention.ops.abc import abc_attention, advance
from fairseq_memattn.attention.ops.common import MemoryState, accumulation_dtype, full_precision

ITERATIONS = 10


@dataclass(frozen=True)
class ClusteringOptions(ControlOptions):
    cluster_bits: int = option(
        0,
        "random bits of a key, whose Hamming distances clusters are made by, 63 in Vyas et al.'s "
        "code; 0 is the Euclidean distance of the keys",
        at_least=0,
    )


@register_control("clustering")
class ClusteringControl(NormalisedControl):
    """phi_i = sum_j M_ij / (sum_l M_lj) e_j: a slot is the mean of the tokens of its cluster.

    The paper follows Vyas et al. (2020), and clusters keys in the place of queries. Theirs, with
    `cluster_bits`: a bit says on which side of a random plane a key is, and ten rounds of Lloyd's
    k-means with Hamming distances group the bits. Ours: without `cluster_bits` the same rounds on
    the keys themselves; the first centroid is the first token, and each further one the token
    farthest from those chosen, where theirs are the first tokens; the planes are drawn once, and
    the checkpoint has them, where they draw them in each forward pass. For causal attention, of
    which neither paper speaks, each token opens a new cluster while slots are left, and then joins
    the cluster with the nearest running centroid, which moves towards it. Memberships have no
    gradient; the means have one.
    """

    Options = ClusteringOptions
    planes: Tensor | None
    uses_heads: ClassVar[bool] = False
    can_carry: ClassVar[bool] = False  # the clusters of two sentences are not the same

    def __init__(self, sizes: Sizes, options: ClusteringOptions) -> None:
        super().__init__(sizes, options)
        planes = None
        if options.cluster_bits:
            generator = torch.Generator().manual_seed(1)
            size = (options.cluster_bits, sizes.head_dim + 1)
            planes = torch.randn(size, generator=generator, device="cpu")
            planes = planes.to(torch.get_default_device())
        self.register_buffer("planes", planes)

    def log_alpha(self, k: Tensor, tokens: Tokens) -> Tensor:
        return k_means(k, self.slots, tokens.key_padding_mask, self.planes)

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, tokens: Tokens, *, causal: bool, dropout: float = 0.0
    ) -> Tensor:
        if not causal:
            return super().attend(q, k, v, tokens, causal=False, dropout=dropout)
        mask = tokens.key_padding_mask
        log_alpha = nearest_running(k, self.slots, None, mask, self.planes)
        log_alpha = drop_writes(log_alpha, dropout, -torch.inf)
        return abc_attention(q, k, v, log_alpha, causal=True, key_padding_mask=mask)

    def step(
        self, q: Tensor, k: Tensor, v: Tensor, tokens: Tokens, state: Any
    ) -> tuple[Tensor, Any]:
        mask = tokens.key_padding_mask
        log_alpha = nearest_running(k, self.slots, state, mask, self.planes)
        return advance(q, k, v, log_alpha, state, mask)


@torch.no_grad()
@full_precision
def k_means(
    k: Tensor, slots: int, key_padding_mask: Tensor | None = None, planes: Tensor | None = None
) -> Tensor:
    """Memberships of the keys (B, H, S, D) in at most `slots` clusters: 0, and -inf elsewhere.

    planes: of `_coded`
    """
    keys = _coded(k.to(accumulation_dtype(k)), planes)
    batch, _, length, _ = keys.shape
    real = torch.ones(batch, length, dtype=torch.bool, device=k.device)
    if key_padding_mask is not None:
        real = ~key_padding_mask
    centroids = _far_apart(keys, slots, real)
    for _ in range(ITERATIONS):
        members = _one_hot(_distances(keys, centroids).argmin(dim=-1), slots, keys.dtype)
        members = members * real[:, None, :, None]
        sizes = members.sum(dim=2).unsqueeze(-1)
        means = members.transpose(2, 3) @ keys / sizes.clamp(min=1)
        if planes is not None:
            means = _signs(means)
        centroids = torch.where(sizes > 0, means, centroids)
    return _log(_one_hot(_distances(keys, centroids).argmin(dim=-1), slots, keys.dtype))


def _far_apart(keys: Tensor, count: int, real: Tensor) -> Tensor:
    """(B, H, count, D): the first key, and then always the one farthest from those chosen."""
    width = keys.shape[-1]
    padding = ~real[:, None].expand(-1, keys.shape[1], -1)
    chosen = real.long().argmax(dim=1)[:, None].expand(-1, keys.shape[1])
    centroids = []
    distance = keys.new_full(keys.shape[:3], torch.inf)
    for _ in range(count):
        last = keys.gather(2, chosen[:, :, None, None].expand(-1, -1, 1, width))
        centroids.append(last)
        distance = torch.minimum(distance, (keys - last).square().sum(-1)).masked_fill(padding, -1)
        chosen = distance.argmax(dim=-1)
    return torch.cat(centroids, dim=2)


@torch.no_grad()
@full_precision
def nearest_running(
    k: Tensor,
    slots: int,
    state: MemoryState | None,
    key_padding_mask: Tensor | None = None,
    planes: Tensor | None = None,
) -> Tensor:
    """Memberships of the keys (B, H, T, D), each decided by the tokens before it alone.

    planes: of `_coded`
    """
    keys = k.to(accumulation_dtype(k))
    batch, heads, length, width = keys.shape
    if state is None:
        state = MemoryState.empty(keys, keys, keys.new_zeros(batch, heads, 1, slots))
    centroids, sizes = state.keys.clone(), state.log_mass.exp()
    nearest = []
    for t in range(length):
        token = keys[:, :, t : t + 1]
        distances = _distances(_coded(token, planes), _coded(centroids, planes)).squeeze(2)
        # A slot that is still empty is nearer than any other, the first of them first.
        distances = distances.masked_fill(sizes == 0, -1.0)
        chosen = _one_hot(distances.argmin(dim=-1), slots, keys.dtype)
        nearest.append(chosen)
        if key_padding_mask is not None:
            chosen = chosen * ~key_padding_mask[:, None, t, None]
        sizes = sizes + chosen
        centroids += (chosen / sizes.clamp(min=1)).unsqueeze(-1) * (token - centroids)
    return _log(torch.stack(nearest, dim=2))


def _coded(keys: Tensor, planes: Tensor | None) -> Tensor:
    """The keys, or their bits as 1 and -1, of which `_distances` is four times the Hamming
    distance.

    planes: (bits, D + 1), the last column of which is the distance from the origin; None keeps
        the keys
    """
    if planes is None:
        return keys
    planes = planes.to(keys.dtype)
    return _signs(keys @ planes[:, :-1].T + planes[:, -1])


def _signs(x: Tensor) -> Tensor:
    return torch.where(x > 0, 1.0, -1.0).to(x.dtype)


def _distances(keys: Tensor, centroids: Tensor) -> Tensor:
    """Squared, (B, H, S, M), 0 at least."""
    products = keys @ centroids.transpose(2, 3)
    squares = keys.square().sum(-1, keepdim=True) + centroids.square().sum(-1).unsqueeze(2)
    return (squares - 2 * products).clamp(min=0)


def _one_hot(slots: Tensor, count: int, dtype: torch.dtype) -> Tensor:
    return torch.nn.functional.one_hot(slots, count).to(dtype)


def _log(memberships: Tensor) -> Tensor:
    return torch.where(memberships > 0, 0.0, -torch.inf).to(memberships.dtype)
