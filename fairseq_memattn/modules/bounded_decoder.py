"""The decoder of Llama's shape in fairseq's conventions."""

from typing import Any

from torch import Tensor

from fairseq_memattn.attention.ops.common import possibly_any
from fairseq_memattn.modules.incremental import IncrementalState, NetworkDecoder
from fairseq_memattn.networks import decoder
from fairseq_memattn.networks.decoder import DecoderSizes


class BoundedDecoder(NetworkDecoder, decoder.Decoder):  # type: ignore[misc]
    """A language model's decoder, with its output projection. Padding is on either side."""

    def __init__(self, dictionary: Any, sizes: DecoderSizes, max_positions: int) -> None:
        decoder.Decoder.__init__(self, sizes)
        self.output_projection = decoder.output_projection(sizes)
        if sizes.tied:
            self.output_projection.weight = self.embed_tokens.weight
        self.pad = dictionary.pad()
        self.enter_fairseq(dictionary, max_positions)

    def logits(self, states: Tensor) -> Tensor:
        return self.output_projection(states)

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
