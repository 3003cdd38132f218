"""T5Mem's encoder of K sequences, and its decoders with and without the selector."""

from typing import Any

import torch
from torch import Tensor, nn

from fairseq_memattn.attention.ops.common import possibly_any
from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.modules.incremental import IncrementalState
from fairseq_memattn.modules.t5_embedding import T5Embedding
from fairseq_memattn.modules.t5_layers import Source, T5DecoderLayer
from fairseq_memattn.modules.t5_stacks import EncoderOut, T5Decoder, T5Encoder
from fairseq_memattn.modules.t5mem_layers import (
    T5ChunkPositionBias,
    T5MemEncoderLayer,
    T5MemPositionBias,
    T5MemSizes,
)
from fairseq_memattn.modules.t5mem_selector import Selected, T5MemCrossAttention, T5MemSelector


class T5MemEncoder(T5Encoder):
    """T5Mem's encoder of K sequences, each with a slot of M memory tokens in front.

    All slots start as the same M learned vectors, plus a learned vector for the distance of the
    sequence from the current one: 0 for the current sequence, which is the last, 1 for the one
    before it. Both are choices. The M vectors differ, because equal vectors would stay equal
    through all layers. The paper leaves the order of sequences to the slots and does not say how
    they encode it. Counted backwards, a distance has the same meaning for every K.
    """

    sizes: T5MemSizes

    def __init__(
        self,
        dictionary: Any,
        embed_tokens: T5Embedding,
        sizes: T5MemSizes,
        layers: int,
        max_positions: int,
    ) -> None:
        super().__init__(dictionary, embed_tokens, sizes, layers, max_positions)
        self.slot_tokens = nn.Parameter(torch.randn(sizes.slots, sizes.embed_dim))
        self.distances = nn.Parameter(torch.randn(sizes.sequences, sizes.embed_dim))

    def build_position_bias(self) -> nn.Module:
        kind = T5MemPositionBias if self.sizes.mem_attention else T5ChunkPositionBias
        return kind(self.sizes)

    def build_layer(self) -> nn.Module:
        return T5MemEncoderLayer(self.sizes)

    def forward(
        self,
        src_tokens: Tensor,
        src_lengths: Any = None,
        context_tokens: Tensor | None = None,
        context_padding_mask: Tensor | None = None,
        target_context: Tensor | None = None,
    ) -> EncoderOut:
        """src_tokens: (B, S), the current sequences, with padding on either side

        context_tokens: (B, K - 1, S'), the sequences before them, oldest first, with padding on
            the right; a sequence of padding alone is absent
        context_padding_mask: (B, K - 1, S'), True at padding
        target_context: (B,), how many sentences of the target precede the translation of the
            current sequence; None is 0

        Returns, batch first, `encoder_out` (B, K, S, E), `slots` (B, K, M, E),
        `encoder_padding_mask` (B, K, S) and `target_context` (B,).

        Raises MemAttnError for too many sequences, and for one that is too long.
        """
        tokens = self.sequences(src_tokens, context_tokens, context_padding_mask)
        padding = tokens.eq(self.dictionary.pad())
        self._check(padding)
        x = self.dropout(torch.cat([self.first_slots(tokens), self.embed_tokens(tokens)], dim=2))
        bias = self.position_bias(padding)
        for layer in self.layers:
            x = layer(x, bias, padding)
        x = self.dropout(self.final_norm(x))
        return {
            "encoder_out": [x[:, :, self.sizes.slots :]],
            "slots": [x[:, :, : self.sizes.slots]],
            "encoder_padding_mask": [padding],
            "target_context": [
                src_tokens.new_zeros(len(x)) if target_context is None else target_context
            ],
        }

    def make_generation_fast_(self, need_attn: Any = None, **kwargs: Any) -> None:
        """fairseq's hook. need_attn: whether `--print-alignment` is given."""
        if need_attn:
            raise MemAttnError(
                "--print-alignment does not work with T5Mem, whose target tokens attend to "
                "mixtures of sequences or to slots; `memattn plot` draws what they select"
            )

    def sequences(
        self, src_tokens: Tensor, context_tokens: Tensor | None, context_padding: Tensor | None
    ) -> Tensor:
        """All sequences (B, K, S), the current one last.

        Leading sequences that are absent in the whole batch are dropped, which changes nothing. On
        a GPU, which would be waited for to know them, they stay.
        """
        pad = self.dictionary.pad()
        current = padded_right(src_tokens, pad).unsqueeze(1)
        if context_tokens is None:
            return current
        if context_padding is not None:
            context_tokens = context_tokens.masked_fill(context_padding, pad)
        while context_tokens.shape[1] and not possibly_any(context_tokens[:, 0].ne(pad)):
            context_tokens = context_tokens[:, 1:]
        if context_tokens.shape[1] == 0:
            return current
        longest = max(current.shape[2], context_tokens.shape[2])
        parts = [
            nn.functional.pad(part, (0, longest - part.shape[2]), value=pad)
            for part in (context_tokens, current)
        ]
        return torch.cat(parts, dim=1)

    def first_slots(self, tokens: Tensor) -> Tensor:
        """The slots (B, K, M, E) that enter the first layer. tokens: (B, K, S)."""
        batch, count, _ = tokens.shape
        slots = self.distances[:count].flip(0).unsqueeze(1) + self.slot_tokens
        return slots.expand(batch, -1, -1, -1)

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


class T5MemDecoder(T5Decoder):
    """T5's decoder whose layers attend to mixtures of the sequences that a selector weighs.

    Beside the logits it returns `selection`, a list of the selector's weights (B, T, K): one for
    all layers, or one for each layer.

    separator: the symbol between two sentences of a target; None where a target is one sentence
    """

    sizes: T5MemSizes

    def __init__(
        self,
        dictionary: Any,
        embed_tokens: T5Embedding,
        sizes: T5MemSizes,
        layers: int,
        max_positions: int,
        separator: int | None = None,
    ) -> None:
        super().__init__(dictionary, embed_tokens, sizes, layers, max_positions)
        self.separator = separator
        self.selector = T5MemSelector(sizes)

    def build_layer(self) -> nn.Module:
        return T5DecoderLayer(self.sizes, T5MemCrossAttention(self.sizes))

    def source_for(
        self,
        tokens: Tensor,
        x: Tensor,
        encoder_out: EncoderOut,
        incremental_state: IncrementalState | None,
    ) -> Selected:
        sequences, slots, padding = (
            encoder_out[name][0] for name in ("encoder_out", "slots", "encoder_padding_mask")
        )
        ahead = self._ahead(tokens, encoder_out["target_context"][0])[:, -x.shape[1] :]
        selected: Selected = self.selector(x, sequences, slots, padding, ahead, incremental_state)
        return selected

    def report(self, weights: list[Tensor | None]) -> dict[str, Any]:
        return {"attn": [None], "selection": weights if self.selector.by_layer else weights[:1]}

    def _ahead(self, tokens: Tensor, target_context: Tensor) -> Tensor:
        """(B, T), how many sentences of the target follow the sentence of a token."""
        ahead = target_context.unsqueeze(1).expand_as(tokens)
        if self.separator is None:
            return ahead
        return (ahead - tokens.eq(self.separator).cumsum(dim=1)).clamp(min=0)


class T5MemSlotDecoder(T5Decoder):
    """T5's decoder over the concatenated slots: T5Mem without a selector (T5MemWs)."""

    def source_for(
        self,
        tokens: Tensor,
        x: Tensor,
        encoder_out: EncoderOut,
        incremental_state: IncrementalState | None,
    ) -> Source:
        slots, padding = encoder_out["slots"][0], encoder_out["encoder_padding_mask"][0]
        present = ~padding.all(dim=2)
        visible = present.repeat_interleave(slots.shape[2], dim=1)
        return Source(slots.flatten(1, 2), visible)


def padded_right(tokens: Tensor, pad: int) -> Tensor:
    """tokens (B, S) with padding on the right; fairseq's translation task has it on the left."""
    on_the_left = tokens.eq(pad).cumprod(dim=1).sum(dim=1, keepdim=True)
    columns = torch.arange(tokens.shape[1], device=tokens.device)
    return tokens.gather(1, (columns + on_the_left) % tokens.shape[1])
