"""What the attention layers have in common: heads, and dropout of attention weights or writes."""

from torch import Tensor, nn


class AttentionDropout(nn.Module):
    """A base of attentions, whose kernels take the rate of dropout.

    dropout: the rate; keeps_dropout: whether evaluation drops too
    """

    out_proj: nn.Linear
    num_heads: int
    dropout: float
    keeps_dropout = False

    @property
    def drop_rate(self) -> float:
        """The rate that is in force."""
        return self.dropout if self.training or self.keeps_dropout else 0.0

    def split(self, x: Tensor) -> Tensor:
        """(*, T, E) as (*, H, T, D)."""
        heads: Tensor = x.unflatten(-1, (self.num_heads, -1))
        return heads.transpose(-3, -2)

    def joined(self, x: Tensor) -> Tensor:
        """(*, H, T, D) as (*, T, E)."""
        return x.transpose(-3, -2).flatten(-2)

    def join(self, x: Tensor) -> Tensor:
        """The output projection of (*, H, T, D): (*, T, E)."""
        return self.out_proj(self.joined(x))


def project(projection: nn.Module, x: Tensor) -> Tensor:
    """A projection of x (B, S, E) that keeps the layout of x, so that nothing is copied for it."""
    if x.is_contiguous():
        return projection(x)
    return projection(x.transpose(0, 1)).transpose(0, 1)
