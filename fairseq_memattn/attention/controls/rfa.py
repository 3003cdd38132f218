"""Random feature attention, RFA (Peng et al., 2021, "Random Feature Attention"): maps and gate."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from fairseq_memattn.attention.controls.kernel import FeatureMap, KernelControl
from fairseq_memattn.attention.controls.options import OptionError, Sizes, option
from fairseq_memattn.attention.controls.random import RandomOptions
from fairseq_memattn.attention.controls.registry import register_control
from fairseq_memattn.attention.ops.common import accumulation_dtype, full_precision, unit_vectors


class RandomFeatures(FeatureMap):
    """[sin(w_i . x), cos(w_i . x)], i <= F / 2, which estimate a kernel of unit queries and keys.

    num_heads: H; head_dim: D; features: F, which is the memory size of the tables in the ABC paper
    seed: of the random vectors; layers should differ in it
    bank_size: how many sets of random vectors there are to draw from, at least H

    Theirs: queries and keys of unit l2 norm, with which the Gaussian kernel is exp(q . k) up to a
    constant; w = sigma * w~ with w~ drawn from N(0, I) and a sigma (D) learned by each head, 1 at
    first; a bank of 200 sets of w~ drawn in advance, and other sets out of it at every training
    update. As in their released code every head has its own set: any in training, and set h for
    head h in evaluation. Their arc-cosine kernel is not here.

    Ours: a bank for each layer; the caller draws (`draw`); constant factors, which cancel out; and
    `floor`. Estimates can be negative, so that the normaliser of a query can be near 0 or below it.
    The floor F ** -0.5 is about the cosine of two unrelated feature vectors: an estimate below it
    is noise. Their code clamps the normaliser at a constant instead, which would also shrink the
    output while gates near 1 have let in little.

    Raises ValueError for an odd F.
    """

    bank: Tensor

    def __init__(
        self, num_heads: int, head_dim: int, features: int, *, seed: int = 0, bank_size: int = 200
    ) -> None:
        super().__init__()
        if features % 2:
            raise ValueError(
                "`features` must be even, a sine and a cosine for each random vector, "
                f"but is {features} instead."
            )
        self.feature_size, self.num_heads = features, num_heads
        self.floor = features**-0.5
        generator = torch.Generator().manual_seed(seed)
        size = (bank_size, features // 2, head_dim)
        bank = torch.randn(size, generator=generator, device="cpu")
        self.register_buffer("bank", bank.to(torch.get_default_device()))
        self.sigma = nn.Parameter(torch.ones(num_heads, 1, head_dim))

    def draw(self) -> Tensor:
        """(H,), the numbers of different sets, drawn where the bank is."""
        # Not `torch.randperm`, whose numbers a GPU may have to wait for.
        return torch.rand(len(self.bank), device=self.bank.device).argsort()[: self.num_heads]

    def forward(self, x: Tensor, is_query: bool, draw: Tensor | None = None) -> Tensor:
        """draw: the set of each head; None takes set h for head h, as in evaluation."""
        sets = self.bank[: self.num_heads] if draw is None else self.bank[draw]
        return fourier_features(x, self.sigma * sets)


@full_precision
def fourier_features(x: Tensor, w: Tensor) -> Tensor:
    """Features of exp(-|sigma * (x - y)|^2 / 2) for unit x (Peng et al., 2021, theorem 1).

    x: (B, H, T, D); w: (H, samples, D). Returns (B, H, T, 2 samples) in float32 or float64.
    """
    dtype = accumulation_dtype(x)
    # Not a product that broadcasts, which copies w for every row.
    angles = torch.einsum("bhtd,hfd->bhtf", unit_vectors(x.to(dtype)), w.to(dtype))
    return torch.cat([angles.sin(), angles.cos()], dim=-1) / math.sqrt(w.shape[1])


class Gate(nn.Module):
    """The gate of RFA (section 3.2): g_t = sigmoid(w . x_t + b), a w and a b for each head.

    The initialisation is `nn.Linear`'s, and ours.
    """

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        self.proj = nn.Linear(embed_dim, num_heads)

    def forward(self, x: Tensor) -> Tensor:
        """x: (B, T, E). Returns log g (B, H, T) in float32 (float64 for float64)."""
        logits: Tensor = self.proj(x)
        return logsigmoid(logits.to(accumulation_dtype(logits))).transpose(1, 2)


@dataclass(frozen=True)
class RFAOptions(RandomOptions):
    rfa_gate: bool = option(False, "let RFA's causal attention forget, by a gate")

    def check(self, sizes: Sizes) -> None:
        if sizes.slots % 2:
            raise OptionError(
                "slots",
                "must be even with RFA, a sine and a cosine for each random vector, "
                f"but is {sizes.slots}",
            )


@register_control("rfa")
class RFAControl(KernelControl):
    """Peng et al. (2021): random features of the Gaussian kernel; optionally, in causal attention,
    with their gate."""

    Options = RFAOptions

    def __init__(self, sizes: Sizes, options: RFAOptions) -> None:
        options.check(sizes)
        features = RandomFeatures(
            sizes.attention_heads, sizes.head_dim, sizes.slots, seed=options.random_seed
        )
        gated = options.rfa_gate and sizes.kind == "causal"
        gate = Gate(sizes.embed_dim, sizes.attention_heads) if gated else None
        super().__init__(sizes, options, features, gate)
