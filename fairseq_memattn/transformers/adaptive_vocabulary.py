"""Adaptive inputs and outputs: frequent tokens have wide embeddings, rare ones narrow ones.

Source: Baevski and Auli, "Adaptive Input Representations for Neural Language Modeling"; Grave et
al., "Efficient softmax approximation for GPUs".
"""

from itertools import pairwise

import torch
from torch import Tensor, nn


class AdaptiveInput(nn.Module):
    """Embeddings in bands: band i has `initial_dim // factor**i` numbers a token.

    cutoffs: the first token of each band after the first, and the number of tokens
    """

    def __init__(self, cutoffs: list[int], initial_dim: int, factor: float, embed_dim: int) -> None:
        super().__init__()
        self.cutoffs, self.embed_dim = cutoffs, embed_dim
        starts = [0, *cutoffs[:-1]]
        self.embeddings = nn.ModuleList()
        for band, (start, end) in enumerate(zip(starts, cutoffs, strict=True)):
            width = int(initial_dim // factor**band)
            self.embeddings.append(
                nn.Sequential(
                    nn.Embedding(end - start, width), nn.Linear(width, embed_dim, bias=False)
                )
            )

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, T, E) of tokens (B, T)."""
        out = self.embeddings[0][1].weight.new_zeros(*tokens.shape, self.embed_dim)  # type: ignore
        start = 0
        for band, end in zip(self.embeddings, self.cutoffs, strict=True):
            chosen = (tokens >= start) & (tokens < end)
            if torch.compiler.is_exporting():  # without sizes that depend on the tokens
                vectors = band(tokens.clamp(start, end - 1) - start)
                out = torch.where(chosen.unsqueeze(-1), vectors, out)
            else:
                vectors = band(tokens[chosen] - start).to(out.dtype)  # autocast has another
                out = out.masked_scatter(chosen.unsqueeze(-1), vectors)
            start = end
        return out


class AdaptiveSoftmax(nn.Module):
    """Log probabilities by bands: the head has the first band's tokens and one entry a band.

    The weights have the forms of fairseq's.

    cutoffs: as of `AdaptiveInput`; widths: of the embeddings of each band
    tied_words, tied_projections: whether the words, and the projections of the tails, can be the
        parameters of an `AdaptiveInput`
    """

    def __init__(
        self,
        cutoffs: list[int],
        widths: list[int],
        embed_dim: int,
        *,
        tied_words: bool = False,
        tied_projections: bool = False,
    ) -> None:
        super().__init__()
        bands, self.first, self.tied_words = len(cutoffs) - 1, cutoffs[0], tied_words
        if tied_words:
            self.word_projection = (
                nn.Linear(embed_dim, widths[0], bias=False) if widths[0] != embed_dim else None
            )
            self.words = nn.Linear(widths[0], cutoffs[0], bias=False)
            self.bands = nn.Linear(embed_dim, bands, bias=False)
        else:
            self.head = nn.Linear(embed_dim, cutoffs[0] + bands, bias=False)
        sizes = [end - start for start, end in pairwise(cutoffs)]
        self.tails = nn.ModuleList(
            Tail(embed_dim, width, size, transposed=tied_projections)
            for width, size in zip(widths[1:], sizes, strict=True)
        )

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, V) of x (B, T, E)."""
        if self.tied_words:
            projected = x if self.word_projection is None else self.word_projection(x)
            head = torch.cat([self.words(projected), self.bands(x)], dim=-1)
        else:
            head = self.head(x)
        words, bands = log_shares(head).split([self.first, len(self.tails)], dim=-1)
        tails = [
            log_shares(tail(x)) + band
            for tail, band in zip(self.tails, bands.split(1, dim=-1), strict=True)
        ]
        return torch.cat([words, *tails], dim=-1)


class Tail(nn.Module):
    """The tokens of one band.

    projection: (width, E); (E, width) if transposed, as that of an input, so that both tie
    """

    def __init__(self, embed_dim: int, width: int, tokens: int, *, transposed: bool) -> None:
        super().__init__()
        self.transposed = transposed
        shape = (embed_dim, width) if transposed else (width, embed_dim)
        self.projection = nn.Parameter(torch.empty(shape))
        nn.init.xavier_uniform_(self.projection)
        self.words = nn.Linear(width, tokens, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, tokens) of x (B, T, E)."""
        projection = self.projection if self.transposed else self.projection.t()
        return self.words(x @ projection)


def log_shares(logits: Tensor) -> Tensor:
    """The log-softmax, in float32 at least."""
    exact = torch.promote_types(logits.dtype, torch.float32)
    return logits.log_softmax(dim=-1, dtype=exact)
