"""ABC's decoder with memories that are carried from sentence to sentence of a document."""

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

from torch import Tensor, nn

from fairseq_memattn.attention.controls import Control
from fairseq_memattn.attention.nn.carried import CarriedMemories, DocumentMemory, SentenceGate
from fairseq_memattn.attention.nn.control_pool import ControlPool
from fairseq_memattn.modules.abc_layers import ABCTransformerDecoder
from fairseq_memattn.modules.layout import batch_first

EncoderOut = dict[str, list[Tensor]]
Sides = tuple[CarriedMemories | None, CarriedMemories | None]  # causal and cross


class DocumentMemoryDecoder(ABCTransformerDecoder):
    """A decoder that reads a document sentence by sentence, with memories of constant size.

    Causal attention begins a sentence with the memory of the translations before it, and cross
    attention reads the memory of the sources so far. Positions count from the sentence's beginning.
    Softmax attention, where an attention has no slots, sees the current sentence alone.

    causal_gates, cross_gates: a `SentenceGate` for each control; empty if no memory fades
    """

    def __init__(self, cfg: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(cfg, *args, **kwargs)
        pools = (self.causal_controls, self.cross_controls)
        self.causal_gates, self.cross_gates = (
            _gates(pool, cfg.encoder.embed_dim, cfg.abc_document_gate) for pool in pools
        )

    def forward(
        self,
        prev_output_tokens: Tensor,
        encoder_out: EncoderOut | None = None,
        incremental_state: dict[str, Any] | None = None,
        *args: Any,
        sentences: int | None = None,
        memory: DocumentMemory | None = None,
        **kwargs: Any,
    ) -> Any:
        """fairseq's forward pass, over the sentences of documents if `sentences` is given.

        prev_output_tokens: (B K, T), each row begins with eos; rows of a document are adjacent
        sentences: K, the number of sentences of each of the B documents
        memory: of the sentences before, of B documents; None is none

        Returns logits (B K, T, V) and a dictionary, in which `memory` is that after the last
        sentence; not in training, which may leave layers out.
        """
        if sentences is None or incremental_state is not None:
            return super().forward(
                prev_output_tokens, encoder_out, incremental_state, *args, **kwargs
            )
        assert encoder_out is not None
        sides = causal, cross = self._sides(encoder_out, sentences, memory)
        with _carrying(self.causal_controls, causal), _carrying(self.cross_controls, cross):
            x, extra = super().forward(prev_output_tokens, encoder_out, None, *args, **kwargs)
        if not self.training:
            extra["memory"] = DocumentMemory(*map(_after, sides))
        return x, extra

    def begin_sentence(
        self, incremental_state: dict[str, Any], encoder_out: EncoderOut, memory: DocumentMemory
    ) -> None:
        """Lets incremental decoding begin with the memory of the sentences before.

        memory: of as many rows as encoder_out
        """
        sides = self._sides(encoder_out, 1, memory)
        for side, name in zip(sides, ("self_attn", "encoder_attn"), strict=True):
            if side is not None:
                for number, layer in enumerate(self.layers):
                    getattr(layer, name).begin(incremental_state, partial(side.of, number))

    def empty_memory(self, rows: int) -> DocumentMemory:
        """The memory before the first sentence of documents."""
        sides = []
        for pool, name in (
            (self.causal_controls, "self_attn"),
            (self.cross_controls, "encoder_attn"),
        ):
            layers = self.layers if pool is not None else []
            sides.append(tuple(getattr(layer, name).empty_memory(rows) for layer in layers))
        return DocumentMemory(*sides)

    def _sides(
        self, encoder_out: EncoderOut, sentences: int, memory: DocumentMemory | None
    ) -> Sides:
        source = batch_first(encoder_out["encoder_out"][0])
        masks = encoder_out["encoder_padding_mask"]
        mask = masks[0] if masks else None
        starts = memory or DocumentMemory((), ())
        causal, cross = (
            None
            if pool is None
            else CarriedMemories(sentences, [_reading(g, source, mask) for g in gates], start)
            for pool, gates, start in (
                (self.causal_controls, self.causal_gates, starts.causal),
                (self.cross_controls, self.cross_gates, starts.cross),
            )
        )
        return causal, cross


def _gates(pool: ControlPool | None, source_dim: int, kind: str) -> nn.ModuleList:
    if pool is None or kind == "none":
        return nn.ModuleList()
    assert pool.spec is not None
    if kind == "first" and pool.spec.sizes.kind != "causal":
        kind = "sentence"
    sizes = (control.gate_sizes for control in pool if isinstance(control, Control))
    return nn.ModuleList(SentenceGate(source_dim, *one, kind) for one in sizes)


def _reading(gate: Any, source: Tensor, mask: Tensor | None) -> Callable[[Tensor], Tensor]:
    """The gate of sentences, from the input (B K, T, E) of a layer."""
    if gate.kind == "first":
        return lambda x: gate(x[:, :1])
    log_gate = gate(source, mask)
    return lambda x: log_gate


def _carrying(pool: ControlPool | None, carried: CarriedMemories | None) -> Any:
    return nullcontext() if pool is None or carried is None else pool.carrying(carried)


def _after(side: CarriedMemories | None) -> tuple[Any, ...]:
    return () if side is None else tuple(side.after[layer] for layer in sorted(side.after))
