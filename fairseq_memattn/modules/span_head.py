"""What marks answers, and supporting facts, in the states of an encoder."""

import logging

import torch
from torch import Tensor, nn

logger = logging.getLogger(__name__)


class SpanHead(nn.Module):
    """Linear scores of each token (GMAT, appendix A.3): to be the answer's first, and its last.

    It stands where a RobertaModel has its head for masked words, so that a checkpoint of such a
    model gives its encoder, and the head begins anew.

    facts: whether there are two scores more, those of the tags 0 and 1 of supporting facts
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
        """(B, S, E) to (B, S, 2), or (B, S, 4) with facts. masked_tokens: as RoBERTa calls it."""
        if self.facts is None:
            return self.span(features)
        return torch.cat([self.span(features), self.facts(features)], dim=2)

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> None:
        """Takes what a checkpoint has of this head; the rest stays as it is."""
        own = {f"{name}.{key}": weight for key, weight in self.state_dict().items()}
        for key in [key for key in state_dict if key.startswith(f"{name}.") and key not in own]:
            del state_dict[key]
        for key, weight in own.items():
            if key not in state_dict:
                logger.info(f"the checkpoint has no {key}: it begins anew")
                state_dict[key] = weight
