"""The encoders and decoders of T5 and T5Mem in fairseq's conventions.

The names of the weights are those of `networks`.
"""

from typing import Any

import torch
from fairseq.models import FairseqDecoder, FairseqEncoder
from torch import Tensor

from fairseq_memattn.attention.ops.common import possibly_any
from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.modules.dropout import KeepsDropout, use_fairseq_dropout_within
from fairseq_memattn.modules.incremental import IncrementalState, NetworkDecoder, is_identity
from fairseq_memattn.networks import t5, t5mem, t5mem_encoder
from fairseq_memattn.networks.t5_layers import T5Embedding, T5Sizes
from fairseq_memattn.networks.t5mem_encoder import T5MemSizes, join_sequences

EncoderOut = dict[str, list[Any]]


class T5Encoder(KeepsDropout, FairseqEncoder, t5.T5Encoder):
    """T5's encoder of one sequence."""

    def __init__(
        self, dictionary: Any, embed_tokens: T5Embedding, sizes: T5Sizes, max_positions: int
    ) -> None:
        super(FairseqEncoder, self).__init__(sizes, embed_tokens)
        self.dictionary, self.positions = dictionary, max_positions
        use_fairseq_dropout_within(self)

    def forward(self, src_tokens: Tensor, src_lengths: Any = None) -> EncoderOut:  # type: ignore[override]
        """src_tokens: (B, S), padding on either side: all positions are relative

        Returns, batch first, `encoder_out` (B, S, E) and `encoder_padding_mask` (B, S).
        """
        encoded = t5.T5Encoder.forward(self, src_tokens)
        return {"encoder_out": [encoded.states], "encoder_padding_mask": [encoded.padding]}

    def reorder_encoder_out(self, encoder_out: EncoderOut, new_order: Tensor) -> EncoderOut:
        """fairseq's hook: the sources of the hypotheses that survive a beam step."""
        states = encoder_out["encoder_out"]
        if is_identity(new_order, len(states[0])):
            return encoder_out
        return {
            name: [tensor.index_select(0, new_order) for tensor in tensors]
            for name, tensors in encoder_out.items()
        }

    def max_positions(self) -> int:
        return self.positions


class T5Decoder(NetworkDecoder, t5.T5Decoder):  # type: ignore[misc]
    """T5's decoder, whose embeddings are the output projection too.

    The decoder replaces the first input token, whatever it is, by the dictionary's `<s>`: T5 starts
    from its padding symbol, fairseq from the end of sentence. In an imported model `<s>` has the
    embedding of T5's padding (`models.hf_t5`).
    """

    def __init__(
        self, dictionary: Any, embed_tokens: T5Embedding, sizes: T5Sizes, max_positions: int
    ) -> None:
        super(FairseqDecoder, self).__init__(sizes, embed_tokens)
        self.enter_fairseq(dictionary, max_positions)

    def extract_features(
        self,
        prev_output_tokens: Tensor,
        encoder_out: EncoderOut,
        incremental_state: IncrementalState | None = None,
    ) -> tuple[Tensor, dict[str, Any]]:
        """The states (B, T, E) that enter the output projection, and `report`.

        prev_output_tokens: (B, T), padding on the right
        """
        starts = torch.full_like(prev_output_tokens[:, :1], self.dictionary.bos())
        tokens = torch.cat([starts, prev_output_tokens[:, 1:]], dim=1)
        slots, ahead = (encoder_out.get(name, [None])[0] for name in ("slots", "target_context"))
        states, padding = (encoder_out[x][0] for x in ("encoder_out", "encoder_padding_mask"))
        encoded = t5.Encoded(states, padding, slots)
        if incremental_state is None:
            decoded = t5.T5Decoder.forward(self, tokens, encoded, ahead)
        else:
            state = self.get_incremental_state(incremental_state, "state")
            if state is None:
                state = self.start(encoded, ahead)
            decoded, state = self.step(tokens[:, -1:], state)
            self.set_incremental_state(incremental_state, "state", state)
        return decoded.states, self.report(list(decoded.weights))

    def report(self, weights: list[Tensor]) -> dict[str, Any]:
        """What is returned beside the states. weights: of the layers' cross attention"""
        return {"attn": weights or [None]}

    def make_generation_fast_(self, *, need_attn: bool = False, **kwargs: Any) -> None:
        """fairseq's hook. need_attn: whether `--print-alignment` is given."""
        self.layers[-1].cross_attention.block.return_weights = bool(need_attn)
        super().make_generation_fast_(**kwargs)


class T5MemEncoder(T5Encoder, t5mem_encoder.T5MemEncoder):
    """T5Mem's encoder of K sequences, each with a slot of M memory tokens in front."""

    def forward(  # type: ignore[override]
        self,
        src_tokens: Tensor,
        src_lengths: Any = None,
        context_tokens: Tensor | None = None,
        context_padding_mask: Tensor | None = None,
        target_context: Tensor | None = None,
    ) -> EncoderOut:
        """src_tokens: (B, S), the current sequences, with padding on either side

        context_tokens: (B, K - 1, S'), the sequences before them, oldest first, with padding on
            either side; a sequence of padding alone is absent
        context_padding_mask: (B, K - 1, S'), True at padding
        target_context: (B,), how many sentences of the target precede the translation of the
            current sequence; None is 0

        Returns, batch first, `encoder_out` (B, K, S, E), `slots` (B, K, M, E),
        `encoder_padding_mask` (B, K, S) and `target_context` (B,).

        Raises MemAttnError for too many sequences, and for one that is too long.
        """
        tokens, padding = self.sequences(src_tokens, context_tokens, context_padding_mask)
        self._check(padding)
        encoded = t5mem_encoder.T5MemEncoder.forward(self, tokens, padding)
        if target_context is None:
            target_context = src_tokens.new_zeros(len(tokens))
        return {
            "encoder_out": [encoded.states],
            "slots": [encoded.slots],
            "encoder_padding_mask": [padding],
            "target_context": [target_context],
        }

    def make_generation_fast_(self, *, need_attn: Any = None, **kwargs: Any) -> None:
        """fairseq's hook. need_attn: whether `--print-alignment` is given."""
        if need_attn:
            raise MemAttnError(
                "--print-alignment does not work with T5Mem, whose target tokens attend to "
                "mixtures of sequences or to slots; `memattn plot` draws what they select"
            )
        super().make_generation_fast_(**kwargs)

    def sequences(
        self, current: Tensor, context: Tensor | None, context_padding: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """All sequences (B, K, S), the current one last, and True at padding.

        Leading sequences that are absent in the whole batch are dropped, which changes nothing. On
        a GPU, which would be waited for to know them, they stay.
        """
        pad = self.sizes.pad
        if context is not None:
            if context_padding is None:
                context_padding = context.eq(pad)
            absent = 0
            while absent < context.shape[1] and not possibly_any(~context_padding[:, absent]):
                absent += 1
            context, context_padding = context[:, absent:], context_padding[:, absent:]
        return join_sequences(current, context, current.eq(pad), context_padding, pad)

    def _check(self, padding: Tensor) -> None:
        count, length = padding.shape[1:]
        if count > self.sizes.sequences:
            raise MemAttnError(
                f"--t5mem-sequences {self.sizes.sequences} is the most sequences of an input, the "
                f"current one included, but there are {count}"
            )
        if length > self.positions:
            raise MemAttnError(
                f"--max-source-positions {self.positions} is the most tokens of a sequence, but "
                f"one has {length} tokens"
            )


class T5MemDecoder(T5Decoder, t5mem.T5MemDecoder):  # type: ignore[misc]
    """T5's decoder whose layers attend to mixtures of the sequences that a selector weighs.

    Beside the logits it returns `selection`, a list of the selector's weights (B, T, K): one for
    all layers, or one for each layer.
    """

    def report(self, weights: list[Tensor]) -> dict[str, Any]:
        return {"attn": [None], "selection": weights}

    # The weights are those of sequences, which are always returned.
    make_generation_fast_ = NetworkDecoder.make_generation_fast_


class T5MemSlotDecoder(T5Decoder, t5mem.T5MemSlotDecoder):  # type: ignore[misc]
    """T5's decoder over the concatenated slots: T5Mem without a selector (T5MemWs)."""


def memory_decoder(sizes: T5MemSizes) -> type[T5Decoder]:
    """The decoder of a design."""
    return T5MemDecoder if sizes.selector else T5MemSlotDecoder
