"""GenBERT's encoder and decoder as those of a model of fairseq.

The decoder holds no copy of the encoder's layers and no reference to them: the encoder passes
itself on in its output.
"""

from typing import Any

from fairseq.models import FairseqIncrementalDecoder
from fairseq.models.roberta.model import RobertaLMHead
from torch import Tensor, nn

from fairseq_memattn.modules.gmat_encoder import GMATEncoder
from fairseq_memattn.modules.incremental import IncrementalModule, IncrementalState
from fairseq_memattn.modules.layout import batch_first
from fairseq_memattn.networks import genbert


class GenBertEncoder(GMATEncoder):
    """GMAT's encoder, whose output has one more item: `tied`, the encoder itself."""

    def forward(  # type: ignore[override]
        self, *args: Any, **kwargs: Any
    ) -> dict[str, list[Any]]:
        return super().forward(*args, **kwargs) | {"tied": [self]}


class GenBertDecoder(genbert.GenBERTDecoder, IncrementalModule, FairseqIncrementalDecoder):
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
        FairseqIncrementalDecoder.__init__(self, dictionary)
        size = embed_tokens.embedding_dim
        genbert.GenBERTDecoder.__init__(self, size, layers)
        self.positions = max_positions
        self.lm_head = RobertaLMHead(size, len(dictionary), activation, weight=embed_tokens.weight)

    def forward(  # type: ignore[override]
        self,
        prev_output_tokens: Tensor,
        encoder_out: dict[str, list[Any]],
        incremental_state: IncrementalState | None = None,
        src_lengths: Any = None,
        features_only: bool = False,
    ) -> tuple[Tensor, dict[str, Any]]:
        """prev_output_tokens: (B, T), padding on the right; while decoding, all tokens so far
        encoder_out: of `GenBertEncoder`

        Returns logits (B, T, symbols), while decoding those of the last position alone.
        """
        x = self.extract_features(prev_output_tokens, encoder_out, incremental_state)
        return (x if features_only else self.output_layer(x)), {"attn": [None]}

    def extract_features(
        self,
        prev_output_tokens: Tensor,
        encoder_out: dict[str, list[Any]],
        incremental_state: IncrementalState | None = None,
    ) -> Tensor:
        """The states (B, T, E) that enter the head."""
        (encoder,), (padding,) = encoder_out["tied"], encoder_out["encoder_padding_mask"]
        states = batch_first(encoder_out["encoder_out"][0])
        if incremental_state is None:
            own = encoder.padding_of(prev_output_tokens)
            return super().forward(encoder, prev_output_tokens, states, padding, own, True)[-1]
        state = self.get_incremental_state(incremental_state, "state")
        if state is None:
            state = self.start(encoder, states, padding)
        hidden, state = self.step(encoder, prev_output_tokens[:, -1:], state)
        self.set_incremental_state(incremental_state, "state", state)
        return hidden[-1]

    def output_layer(self, features: Tensor) -> Tensor:
        """(B, T, E) to logits (B, T, symbols)."""
        logits: Tensor = self.lm_head(features)
        return logits

    def max_positions(self) -> int:
        """fairseq's hook: the longest target."""
        return self.positions
