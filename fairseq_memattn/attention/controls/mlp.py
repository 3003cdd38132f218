"""ABC-MLP: the token decides where it is written (ABC paper, section 4, equation 12)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from fairseq_memattn.attention.controls.base import (
    FloatLinear,
    NormalisedControl,
    Tokens,
    drop_writes,
)
from fairseq_memattn.attention.controls.options import ControlOptions, Sizes, option
from fairseq_memattn.attention.controls.registry import register_control
from fairseq_memattn.attention.ops.abc import abc_write
from fairseq_memattn.attention.ops.common import MemoryState


def _log_relu(logits: Tensor) -> Tensor:
    positive = logits > 0
    # The inner `where` keeps log's infinite slope at 0 out of the gradient.
    return torch.where(positive, logits, 1.0).log().masked_fill(~positive, -torch.inf)


# The paper's three activations, each as the logarithm of what it writes (appendix C.2).
LOG_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "exp": lambda logits: logits,
    "sigmoid": logsigmoid,
    "relu": _log_relu,
}


def log_control(logits: Tensor, activation: str = "exp") -> Tensor:
    """log alpha from logits = W_phi x, both (B, H, S, M), in float32 (or float64).

    activation: "exp", "sigmoid" or "relu". With "relu" a logit <= 0 gives -inf: nothing is
    written, and a slot into which nothing was written is never read.
    """
    if logits.dtype != torch.float64:
        logits = logits.float()
    return LOG_ACTIVATIONS[activation](logits)


@dataclass(frozen=True)
class MLPOptions(ControlOptions):
    activation: str = option(
        "exp",
        "activation of W_phi x, which decides how much of a token is written into each slot; the "
        "ABC paper finds exp best and relu least stable",
        choices=tuple(LOG_ACTIVATIONS),
    )


@register_control("mlp")
class MLPControl(NormalisedControl):
    """alpha = activation(W_phi x), with one W_phi for each head or one for all heads.

    The first weights give write logits with a standard deviation of 4 for inputs of unit variance
    (our choice): a slot then begins with a few tokens and differs from the other slots. With small
    weights every slot would begin with the mean of all tokens.
    """

    Options = MLPOptions
    can_split: ClassVar[bool] = True
    packs: ClassVar[bool] = True

    def __init__(self, sizes: Sizes, options: MLPOptions) -> None:
        super().__init__(sizes, options)
        self.activation = options.activation
        self.proj = FloatLinear(sizes.embed_dim, self.heads * self.slots, bias=False)
        nn.init.normal_(self.proj.weight, std=4 * sizes.embed_dim**-0.5)

    def log_alpha(self, k: Tensor, tokens: Tokens) -> Tensor:
        """Layers that read one source with one control compute it once."""
        x, shared = tokens.x, tokens.shared
        return self.forward(x) if shared is None else shared.once(self, x, lambda: self.forward(x))

    def write_tokens(self, tokens: Tokens, dropout: float = 0.0) -> MemoryState | None:
        if self.heads > 1:
            return None
        x = tokens.x.unsqueeze(1)
        log_alpha = drop_writes(self.log_alpha(x, tokens), dropout, -torch.inf)
        return abc_write(x, x, log_alpha, tokens.key_padding_mask)

    def forward(self, x: Tensor) -> Tensor:
        """x: (B, S, E). Returns log alpha (B, heads, S, M), in float32."""
        return log_control(self.by_head(self.proj(x)), self.activation)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, activation={self.activation}"
