"""GMAT's (q, r) position embeddings (section 2, "Positional Embeddings")."""

from typing import Any

import torch
from fairseq.modules import LearnedPositionalEmbedding
from torch import Tensor, nn

from fairseq_memattn.errors import MemAttnError

BLOCK = 512  # the paper's: with r < 512, the table can be that of a pretrained model
MAX_POSITIONS = 2**15


class BlockPositionalEmbedding(LearnedPositionalEmbedding):
    """Position p has the sum of two learned vectors, for r = p mod N and q = p div N.

    The paper has N = 512.

    weight: the vectors for r, in the layout of RoBERTa's table: (padding + 1 + N, E)
    blocks: the vectors for q, (2^15 / N rounded up, E). They are initialised with zeros, which
        leaves a pretrained model's first N positions unchanged (a choice, as is that sequences of
        up to N tokens have q too)
    """

    def __init__(self, embed_dim: int, padding_idx: int, block: int = BLOCK) -> None:
        super().__init__(padding_idx + 1 + block, embed_dim, padding_idx)
        nn.init.normal_(self.weight, std=embed_dim**-0.5)
        nn.init.zeros_(self.weight[padding_idx])
        self.blocks = nn.Parameter(torch.zeros(-(-MAX_POSITIONS // block), embed_dim))
        self.block = block
        self.max_positions = MAX_POSITIONS

    def forward(self, input: Tensor, *unused: Any) -> Tensor:
        """input: tokens (B, S), with padding anywhere, which has no position

        Returns (B, S, E).

        Raises MemAttnError for more than 2 ** 15 positions.
        """
        check_positions("a sequence in the batch", input.shape[1])
        real = input.ne(self.padding_idx)
        positions = (real.cumsum(dim=1) - 1).clamp(min=0)
        rows = positions % self.block + self.padding_idx + 1
        of_r = nn.functional.embedding(
            rows.masked_fill(~real, self.padding_idx), self.weight, self.padding_idx
        )
        return of_r + nn.functional.embedding(positions // self.block, self.blocks)

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> None:
        """fairseq's hook, called before a checkpoint is loaded.

        Raises MemAttnError for a checkpoint with another N.
        """
        weight = state_dict.get(f"{name}.weight")
        trained = self.block if weight is None else len(weight) - self.padding_idx - 1
        if trained != self.block:
            raise MemAttnError(
                f"--gmat-position-block {self.block} must be {trained}, as in the checkpoint"
            )


def check_positions(what: str, positions: int) -> None:
    """Raises MemAttnError for more positions than GMAT has vectors for."""
    if positions > MAX_POSITIONS:
        raise MemAttnError(
            f"{what} has {positions} positions, but GMAT's position embeddings end at "
            f"{MAX_POSITIONS}"
        )
