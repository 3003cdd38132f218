"""GenBERT's encoder and decoder as those of a model of fairseq.

The decoder holds no copy of the encoder's layers and no reference to them: the encoder passes
itself on in its output.
"""

from typing import Any

from fairseq.models.roberta.model import RobertaLMHead
from torch import Tensor, nn

from fairseq_memattn.modules.gmat_encoder import GMATEncoder
from fairseq_memattn.modules.incremental import IncrementalState, NetworkDecoder
from fairseq_memattn.modules.layout import batch_first
from fairseq_memattn.networks import genbert


class GenBertEncoder(GMATEncoder):
    """GMAT's encoder, whose output has one more item: `tied`, the encoder itself."""

    def forward(  # type: ignore[override]
        self, *args: Any, **kwargs: Any
    ) -> dict[str, list[Any]]:
        return super().forward(*args, **kwargs) | {"tied": [self]}


class GenBertDecoder(NetworkDecoder, genbert.GenBERTDecoder):  # type: ignore[misc]
    """The network `GenBERTDecoder`, whose state fairseq's incremental decoding keeps.

    embed_tokens: the encoder's table, which is the output projection too
    layers: how many of the encoder's layers decode, the last ones; all of them in GenBERT
    activation: of the head
    max_positions: the longest target
    """

    def __init__(
        self,
        dictionary: Any,
        embed_tokens: nn.Embedding,
        *,
        layers: int,
        activation: str,
        max_positions: int,
    ) -> None:
        size = embed_tokens.embedding_dim
        genbert.GenBERTDecoder.__init__(self, size, layers)
        self.lm_head = RobertaLMHead(size, len(dictionary), activation, weight=embed_tokens.weight)
        self.enter_fairseq(dictionary, max_positions)

    def logits(self, states: Tensor) -> Tensor:
        return self.lm_head(states)

    def extract_features(
        self,
        prev_output_tokens: Tensor,
        encoder_out: dict[str, list[Any]],
        incremental_state: IncrementalState | None = None,
    ) -> tuple[Tensor, dict[str, Any]]:
        """The states (B, T, E) that enter the head.

        prev_output_tokens: (B, T), padding on the right; encoder_out: of `GenBertEncoder`
        """
        (encoder,), (padding,) = encoder_out["tied"], encoder_out["encoder_padding_mask"]
        states = batch_first(encoder_out["encoder_out"][0])
        if incremental_state is None:
            own = encoder.padding_of(prev_output_tokens)
            hidden = genbert.GenBERTDecoder.forward(
                self, encoder, prev_output_tokens, states, padding, own, True
            )
            return hidden[-1], {"attn": [None]}
        state = self.get_incremental_state(incremental_state, "state")
        if state is None:
            state = self.start(encoder, states, padding)
        hidden, state = self.step(encoder, prev_output_tokens[:, -1:], state)
        self.set_incremental_state(incremental_state, "state", state)
        return hidden[-1], {"attn": [None]}
