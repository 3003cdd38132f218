"""T5's embedding table, which is also the decoder's output projection."""

from typing import Any

import torch
from torch import Tensor, nn


class T5Embedding(nn.Embedding):
    """Embeddings with a standard deviation of 1, and logits multiplied by E^-1/2.

    dictionary: fairseq's; size: E
    scaled: store the embeddings multiplied by E^-1/2, and multiply them by E^1/2 in the forward
        pass, as fairseq's transformer does. The function is the same, but optimisers whose steps
        are not proportional to the weights, such as Adam, change the logits E^1/2 times as fast.
        Checkpoints of either kind can be loaded
    """

    scale: Tensor

    def __init__(self, dictionary: Any, size: int, scaled: bool = False) -> None:
        super().__init__(len(dictionary), size, dictionary.pad())
        nn.init.normal_(self.weight, std=size**-0.5 if scaled else 1.0)
        nn.init.zeros_(self.weight[dictionary.pad()])
        self.scaled = scaled
        if scaled:
            self.register_buffer("scale", torch.tensor(size**0.5))  # marks the checkpoint

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
        """fairseq's hook, called before a checkpoint is loaded."""
        weight, scale = f"{name}.weight", f"{name}.scale"
        if weight not in state_dict or (scale in state_dict) == self.scaled:
            return
        if self.scaled:
            state_dict[scale] = self.scale.clone()
            state_dict[weight] = state_dict[weight] * self.embedding_dim**-0.5
        else:
            del state_dict[scale]
            state_dict[weight] = state_dict[weight] * self.embedding_dim**0.5
