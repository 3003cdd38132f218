"""GMAT's attention as a replacement of fairseq's `MultiheadAttention`."""

from typing import Any

import torch
from fairseq.modules.quant_noise import quant_noise
from torch import Tensor, nn

from fairseq_memattn.attention.nn.global_memory import GlobalMemoryAttention
from fairseq_memattn.modules.layout import batch_first, time_first


class GMATAttention(GlobalMemoryAttention):
    """`GlobalMemoryAttention` over one sequence of states, of which the memory is the first M.

    slots: M
    q_noise, qn_block_size: fairseq's quantization noise
    options: those of `GlobalMemoryAttention`
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        slots: int,
        *,
        q_noise: float = 0.0,
        qn_block_size: int = 8,
        **options: Any,
    ) -> None:
        super().__init__(embed_dim, num_heads, **options)
        self.slots = slots
        for module in self.modules():
            if isinstance(module, nn.Linear):
                quant_noise(module, q_noise, qn_block_size)

    def forward(  # type: ignore[override]
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = False,
        attn_mask: Tensor | None = None,
    ) -> tuple[Tensor, None]:
        """query: (M + S, B, E), the memory first. With S = 0 the memory attends to itself alone.
        key_padding_mask: (B, S), of the tokens, True at padding; with chunks, on the right
        The other arguments are those of fairseq's encoder layer, which passes the query as key and
        value and no `attn_mask`. They are ignored.

        Returns (M + S, B, E), and None in place of the weights, which are never computed.
        """
        states = batch_first(query)
        memory, tokens = states[:, : self.slots], states[:, self.slots :]
        tokens, memory = self.attend(tokens, memory, key_padding_mask)
        return time_first(torch.cat([memory, tokens], dim=1)), None
