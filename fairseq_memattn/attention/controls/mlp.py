"""ABC-MLP: the token decides where it is written (ABC paper, section 4, equation 12)."""

import torch
from torch import Tensor, nn

from fairseq_memattn.attention.controls.activations import log_control
from fairseq_memattn.attention.controls.base import (
    ControlOptions,
    NormalisedControl,
    drop_writes,
)
from fairseq_memattn.attention.ops.abc import abc_write
from fairseq_memattn.attention.ops.state import MemoryState


class MLPControl(NormalisedControl):
    """alpha = activation(W_phi x), one W_phi a head or one for all heads."""

    def __init__(self, options: ControlOptions) -> None:
        super().__init__(options)
        self.activation = options.activation
        self.proj = nn.Linear(options.embed_dim, self.heads * self.slots, bias=False)
        # For inputs of unit variance: write logits of standard deviation 4, so that a slot starts
        # with a few tokens in it, other ones than its neighbours, and not with the mean of all.
        nn.init.normal_(self.proj.weight, std=4 * options.embed_dim**-0.5)
        self.keeps = False
        self.kept: tuple[Tensor, Tensor] | None = None

    def log_alpha(self, k: Tensor, x: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        if self.kept is not None and self.kept[0] is x:
            return self.kept[1]
        log_alpha = self.forward(x)
        if self.keeps:
            self.kept = (x, log_alpha)
        return log_alpha

    def write_tokens(
        self, x: Tensor, key_padding_mask: Tensor | None = None, dropout: float = 0.0
    ) -> MemoryState | None:
        if self.heads > 1:
            return None
        tokens = x.transpose(0, 1).unsqueeze(1)
        log_alpha = self.log_alpha(tokens, x, key_padding_mask)
        log_alpha = drop_writes(log_alpha, dropout, -torch.inf)
        return abc_write(tokens, tokens, log_alpha, key_padding_mask)

    def forward(self, x: Tensor) -> Tensor:
        """x: (S, B, E). Returns log alpha (B, heads, S, M), in float32."""
        length, batch, _ = x.shape
        logits = self.proj(x).view(length, batch, self.heads, self.slots)
        return log_control(logits.permute(1, 2, 0, 3), self.activation)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, activation={self.activation}"
