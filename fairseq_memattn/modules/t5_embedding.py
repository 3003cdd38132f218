"""T5's table of embeddings, which is also the decoder's output projection."""

from typing import Any

import torch
from torch import Tensor, nn


class T5Embedding(nn.Embedding):
    """T5 draws embeddings from a standard normal distribution and multiplies logits by E^-1/2.

    scaled: keep E^-1/2 times those embeddings and multiply what comes in by E^1/2, as fairseq's
        transformer does. It is the same function, but steps that do not go by the size of a
        weight, as Adam's, change logits E^1/2 times as fast. Weights of either kind are loaded.
    """

    scale: Tensor

    def __init__(self, dictionary: Any, size: int, scaled: bool = False) -> None:
        super().__init__(len(dictionary), size, dictionary.pad())
        nn.init.normal_(self.weight, std=size**-0.5 if scaled else 1.0)
        nn.init.zeros_(self.weight[dictionary.pad()])
        self.scaled = scaled
        if scaled:
            self.register_buffer("scale", torch.tensor(size**0.5))  # tells checkpoints apart

    def forward(self, tokens: Tensor) -> Tensor:
        """(...) -> (..., E)"""
        x: Tensor = super().forward(tokens)
        return x * self.embedding_dim**0.5 if self.scaled else x

    def logits(self, features: Tensor, bias: Tensor) -> Tensor:
        """(..., E) -> (..., symbols)"""
        if not self.scaled:
            features = features * self.embedding_dim**-0.5
        return nn.functional.linear(features, self.weight, bias)

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> None:
        """fairseq's hook, before weights are loaded."""
        weight, scale = f"{name}.weight", f"{name}.scale"
        if weight not in state_dict or (scale in state_dict) == self.scaled:
            return
        if self.scaled:
            state_dict[scale] = self.scale.clone()
            state_dict[weight] = state_dict[weight] * self.embedding_dim**-0.5
        else:
            del state_dict[scale]
            state_dict[weight] = state_dict[weight] * self.embedding_dim**0.5
