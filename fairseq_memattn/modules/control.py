"""Learned controls, and which layers share them."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from fairseq_memattn.attention.controls.mlp import log_control


class MLPControl(nn.Module):
    """W_phi of ABC-MLP (ABC paper, equation 12): which slots a token is written into.

    embed_dim: E, the size of the tokens' representations
    slots: M, the memory slots
    heads: how many controls; 1 where all heads share one
    activation: "exp", "sigmoid" or "relu"
    """

    def __init__(self, embed_dim: int, slots: int, heads: int, activation: str) -> None:
        super().__init__()
        self.slots, self.heads, self.activation = slots, heads, activation
        self.proj = nn.Linear(embed_dim, heads * slots, bias=False)
        # For inputs of unit variance: write logits of standard deviation 4, so that a slot starts
        # with a few tokens in it, other ones than its neighbours, and not with the mean of all.
        nn.init.normal_(self.proj.weight, std=4 * embed_dim**-0.5)
        self.keeps = False
        self.kept: tuple[Tensor, Tensor] | None = None

    def forward(self, x: Tensor) -> Tensor:
        """x: (S, B, E). Returns log alpha (B, heads, S, M), in float32."""
        if self.kept is not None and self.kept[0] is x:
            return self.kept[1]
        log_alpha = self._log_alpha(x)
        if self.keeps:
            self.kept = (x, log_alpha)
        return log_alpha

    def _log_alpha(self, x: Tensor) -> Tensor:
        length, batch, _ = x.shape
        logits = self.proj(x).view(length, batch, self.heads, self.slots)
        return log_control(logits.permute(1, 2, 0, 3), self.activation)

    def extra_repr(self) -> str:
        return f"slots={self.slots}, heads={self.heads}, activation={self.activation}"


class ControlPool(nn.ModuleList):
    """Hands every layer its control: always the same one, or each its own.

    The paper ties phi over the layers (section 4). The pool owns the controls and the layers
    only refer to them, so a tied one is one entry in the checkpoint and in the optimiser.
    """

    def __init__(
        self, embed_dim: int, slots: int, heads: int, activation: str, *, tied: bool
    ) -> None:
        super().__init__()
        self.arguments = (embed_dim, slots, heads, activation)
        self.tied = tied

    def for_next_layer(self) -> MLPControl:
        if not self.tied or len(self) == 0:
            self.append(MLPControl(*self.arguments))
        control = self[-1]
        assert isinstance(control, MLPControl)
        return control

    @contextmanager
    def one_source(self) -> Iterator[None]:
        """While all layers read one and the same source, a tied control looks at it once."""
        controls = [control for control in self if isinstance(control, MLPControl)]
        for control in controls:
            control.keeps = True
        try:
            yield
        finally:
            for control in controls:
                control.keeps, control.kept = False, None


def drop_writes(log_alpha: Tensor, p: float) -> Tensor:
    """Attention dropout for a bounded memory: leaves out each write with probability p.

    Softmax attention drops entries of its weights; the weights of ABC are the control vectors.
    Dropping before they are normalised keeps a memory a weighted mean in every form of the
    attention. The paper does not say what it does.
    """
    dropped = torch.rand_like(log_alpha) < p
    return log_alpha.masked_fill(dropped, -torch.inf)
