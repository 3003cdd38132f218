"""The decoder of Llama's shape in fairseq's conventions."""

from collections.abc import Callable
from typing import Any

from fairseq.models import FairseqIncrementalDecoder
from torch import Tensor

from fairseq_memattn.attention.ops.common import possibly_any
from fairseq_memattn.modules.dropout import keep_dropout, use_fairseq_dropout
from fairseq_memattn.modules.incremental import IncrementalModule, IncrementalState
from fairseq_memattn.networks import decoder
from fairseq_memattn.networks.decoder import DecoderSizes


class BoundedDecoder(IncrementalModule, FairseqIncrementalDecoder, decoder.Decoder):
    """A language model's decoder, with its output projection."""

    init_incremental_state: Callable[[], None]

    def __init__(self, dictionary: Any, sizes: DecoderSizes, max_positions: int) -> None:
        decoder.Decoder.__init__(self, sizes)
        self.output_projection = decoder.output_projection(sizes)
        if sizes.tied:
            self.output_projection.weight = self.embed_tokens.weight
        self.dictionary, self.positions, self.pad = dictionary, max_positions, dictionary.pad()
        self.adaptive_softmax, self.onnx_trace = None, False
        self.init_incremental_state()
        for module in list(self.modules()):
            use_fairseq_dropout(module, type(self).__name__)

    def forward(  # type: ignore[override]
        self,
        prev_output_tokens: Tensor,
        encoder_out: None = None,
        incremental_state: IncrementalState | None = None,
        src_lengths: Any = None,
        features_only: bool = False,
    ) -> tuple[Tensor, dict[str, Any]]:
        """prev_output_tokens: (B, T), padding on either side; while decoding, all tokens so far

        Returns logits (B, T, symbols), while decoding those of the new positions alone.
        """
        x, extra = self.extract_features(prev_output_tokens, encoder_out, incremental_state)
        return (x if features_only else self.output_layer(x)), extra

    def extract_features(
        self,
        prev_output_tokens: Tensor,
        encoder_out: None = None,
        incremental_state: IncrementalState | None = None,
    ) -> tuple[Tensor, dict[str, Any]]:
        """The states (B, T, E) that enter the output projection."""
        if incremental_state is None:
            mask = self._padding(prev_output_tokens)
            return decoder.Decoder.forward(self, prev_output_tokens, mask), {"attn": [None]}
        return self.read_on(prev_output_tokens[:, -1:], incremental_state), {"attn": [None]}

    def read_on(
        self, tokens: Tensor, incremental_state: IncrementalState, start: int = 0
    ) -> Tensor:
        """The states (B, T, E) of the T tokens after those of incremental_state, in one call.

        start: not read: rotary positions are relative
        """
        state = self.get_incremental_state(incremental_state, "state")
        x, state = self.step(tokens, state, self._padding(tokens))
        self.set_incremental_state(incremental_state, "state", state)
        return x

    def _padding(self, tokens: Tensor) -> Tensor | None:
        mask = tokens.eq(self.pad)
        return mask if possibly_any(mask) else None

    def output_layer(self, features: Tensor, **kwargs: Any) -> Tensor:
        """(B, T, E) to logits (B, T, symbols)."""
        logits: Tensor = self.output_projection(features)
        return logits

    def max_positions(self) -> int:
        return self.positions

    def make_generation_fast_(self, **kwargs: Any) -> None:
        """fairseq's hook."""
        keep_dropout(self, **kwargs)
