"""What fairseq's transformer lacks for the models of Marian: their positions and their start."""

from typing import Any

import torch
from fairseq.modules import SinusoidalPositionalEmbedding
from fairseq.utils import make_positions
from torch import Tensor, nn

from fairseq_memattn.networks.positions import marian_sinusoids


class MarianPositionalEmbedding(SinusoidalPositionalEmbedding):
    """`marian_sinusoids` of the positions from 0, without counting padding.

    length: rows of the table, which grows where a sequence is longer
    """

    weights: Tensor

    def __init__(self, embedding_dim: int, padding_idx: int, length: int) -> None:
        super().__init__(embedding_dim, padding_idx, init_size=padding_idx + 1)
        self.weights = self.vectors(0, length)

    def vectors(self, start: int, length: int, device: torch.device | None = None) -> Tensor:
        """(length, E) of the positions from `start`."""
        positions = torch.arange(start, start + length, device=device)
        return marian_sinusoids(positions, self.embedding_dim)

    def forward(self, input: Tensor, incremental_state: Any = None, **kwargs: Any) -> Tensor:
        """(B, T, E) of tokens (B, T), or (B, 1, E) of the last ones in incremental decoding."""
        length = input.shape[1]
        if length > len(self.weights):
            self.weights = self.vectors(0, length, self.weights.device).to(self.weights)
        if incremental_state is not None:
            return self.weights[length - 1].expand(len(input), 1, -1)
        positions = make_positions(input, self.padding_idx) - self.padding_idx - 1
        return self.weights[positions.clamp(min=0)]


class StartEmbedding(nn.Embedding):
    """Embeddings with the vector of padding for `start`, the decoder's first input.

    Marian's decoder begins with padding, whose vector is not trained, and fairseq's with the end of
    sentence, which is no other input of a decoder.

    tokens: the embedding whose weight it has
    """

    def __init__(self, tokens: nn.Embedding, start: int) -> None:
        sizes = tokens.num_embeddings, tokens.embedding_dim
        super().__init__(*sizes, tokens.padding_idx, device="meta")
        self.weight, self.start = tokens.weight, start

    def forward(self, input: Tensor) -> Tensor:
        assert self.padding_idx is not None
        return super().forward(input.masked_fill(input.eq(self.start), self.padding_idx))
