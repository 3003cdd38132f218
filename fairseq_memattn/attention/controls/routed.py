"""Tokens that are routed to a few slots each."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fairseq_memattn.attention.controls.base import FloatLinear
from fairseq_memattn.attention.controls.gated import GatedControl, GatedOptions
from fairseq_memattn.attention.controls.mlp import MLPControl, MLPOptions
from fairseq_memattn.attention.controls.options import ControlOptions, OptionError, Sizes, option
from fairseq_memattn.attention.controls.registry import register_control


@dataclass(frozen=True)
class RouterOptions(ControlOptions):
    top_k: int = option(2, "the slots that each token is written into", at_least=1)
    router_noise: bool = option(
        False, "in training, choose the slots of a token by logits with Gumbel noise"
    )

    def check(self, sizes: Sizes) -> None:
        super().check(sizes)
        if self.top_k > sizes.slots:
            raise OptionError(
                "top_k", f"must be at most the {sizes.slots} slots, but is {self.top_k}"
            )


@dataclass(frozen=True)
class RoutedOptions(RouterOptions, MLPOptions):
    pass


@dataclass(frozen=True)
class RoutedGatedOptions(RouterOptions, GatedOptions):
    pass


def chosen_slots(logits: Tensor, count: int, noise: bool) -> Tensor:
    """(..., M), True in the slots of the `count` largest logits (..., M), noise added to them."""
    if noise:
        logits = logits - torch.empty_like(logits).exponential_().log()
    chosen = torch.zeros_like(logits, dtype=torch.bool)
    return chosen.scatter(-1, logits.topk(count, dim=-1).indices, True)


@register_control("routed")
class RoutedControl(MLPControl):
    """alpha = activation(W_phi x) in the `top_k` slots with the largest W_phi x, and 0 elsewhere.

    The routing of Afzal et al. ("Raven: High-Recall Sequence Modeling with Sparse Memory Routing";
    in flash-linear-attention) with the normalisation of ABC: a slot is the weighted mean of the
    tokens that are routed to it, and no token is forgotten. Theirs divides the weights of a token
    by their sum over its slots, so that with one slot they would be 1 and the router would not
    learn. The weights without noise are written, where theirs have noise too. `routed_gated`
    forgets.
    """

    Options = RoutedOptions

    def __init__(self, sizes: Sizes, options: RoutedOptions) -> None:
        super().__init__(sizes, options)
        self.top_k, self.router_noise = options.top_k, options.router_noise

    def forward(self, x: Tensor) -> Tensor:
        log_alpha = super().forward(x)
        noise = self.router_noise and self.training
        return log_alpha.masked_fill(~chosen_slots(log_alpha, self.top_k, noise), -torch.inf)


@register_control("routed_gated")
class RoutedGatedControl(GatedControl):
    """Gated slots that a token forgets and writes only if it is routed to them.

    Raven (Afzal et al.): log g = w log g~ with g~ the gate of `gated`, for each slot as in
    their decay of gated linear attention, and w = sigmoid(W_r x) in the `top_k` slots with the
    largest W_r x, 0 elsewhere: all other slots keep what they hold. Theirs divides w by its sum
    over the slots of a token, with which a router of one slot has no gradient, and has a damping of
    8 in the place of 16, or one decay a head as in Mamba 2.
    """

    Options = RoutedGatedOptions

    def __init__(self, sizes: Sizes, options: RoutedGatedOptions) -> None:
        super().__init__(sizes, options)
        self.top_k, self.router_noise = options.top_k, options.router_noise
        self.router = FloatLinear(sizes.embed_dim, self.heads * self.slots, bias=False)
        nn.init.normal_(self.router.weight, std=sizes.embed_dim**-0.5)

    def gates(self, x: Tensor) -> Tensor:
        logits = self.by_head(self.router(x))
        chosen = chosen_slots(logits, self.top_k, self.router_noise and self.training)
        return super().gates(x) * logits.sigmoid() * chosen
