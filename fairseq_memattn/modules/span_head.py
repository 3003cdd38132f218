"""The head that marks answers and supporting facts in the states of an encoder."""

import logging

import torch
from torch import Tensor, nn

logger = logging.getLogger(__name__)


class SpanHead(nn.Module):
    """Linear scores of each token as the answer's first and last token (GMAT, appendix A.3).

    The head takes the place of a RobertaModel's head for masked words. A checkpoint of such a model
    initialises the encoder, while this head keeps its random initialisation.

    facts: whether to add two scores for the tags 0 and 1 of supporting facts
    """

    def __init__(self, embed_dim: int, facts: bool) -> None:
        super().__init__()
        self.span = nn.Linear(embed_dim, 2)
        self.facts = nn.Linear(embed_dim, 2) if facts else None
        for layer in (self.span, self.facts):
            if layer is not None:
                nn.init.normal_(layer.weight, std=0.02)  # BERT's initialisation
                nn.init.zeros_(layer.bias)

    def forward(self, features: Tensor, masked_tokens: None = None) -> Tensor:
        """(B, S, E) to (B, S, 2), or (B, S, 4) with facts. RoBERTa's masked_tokens is ignored."""
        if self.facts is None:
            return self.span(features)
        return torch.cat([self.span(features), self.facts(features)], dim=2)

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> None:
        """fairseq's hook: completes a checkpoint that lacks weights of this head."""
        own = {f"{name}.{key}": weight for key, weight in self.state_dict().items()}
        for key in [key for key in state_dict if key.startswith(f"{name}.") and key not in own]:
            del state_dict[key]
        for key, weight in own.items():
            if key not in state_dict:
                logger.info(f"the checkpoint has no {key}: it keeps its initial values")
                state_dict[key] = weight
