"""Dropout of attention weights or writes, a number that is in force in training."""

from torch import nn


class AttentionDropout(nn.Module):
    """A base of attentions, whose kernels take the rate.

    dropout: the rate; keeps_dropout: whether evaluation drops too
    """

    dropout: float
    keeps_dropout = False

    @property
    def drop_rate(self) -> float:
        """The rate that is in force."""
        return self.dropout if self.training or self.keeps_dropout else 0.0
