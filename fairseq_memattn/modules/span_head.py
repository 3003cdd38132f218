"""The head that marks answers and supporting facts in the states of an encoder."""

import logging

from torch import Tensor

from fairseq_memattn.networks import gmat_layers

logger = logging.getLogger(__name__)


class SpanHead(gmat_layers.SpanHead):
    """The network `SpanHead` in the place of a RobertaModel's head for masked words.

    A checkpoint of such a model initialises the encoder, while this head keeps its random
    initialisation.
    """

    def forward(self, states: Tensor, masked_tokens: None = None) -> Tensor:
        """As the network's. RoBERTa's masked_tokens is ignored."""
        return super().forward(states)

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> None:
        """fairseq's hook: completes a checkpoint that lacks weights of this head."""
        own = {f"{name}.{key}": weight for key, weight in self.state_dict().items()}
        for key in [key for key in state_dict if key.startswith(f"{name}.") and key not in own]:
            del state_dict[key]
        for key, weight in own.items():
            if key not in state_dict:
                logger.info(f"the checkpoint has no {key}: it keeps its initial values")
                state_dict[key] = weight
