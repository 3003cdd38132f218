"""T5Mem: T5 over K sequences, each with a slot of memory (Al Adel and Burtsev, 2021).

`t5mem_v1` to `t5mem_v4` are the paper's designs (section V), with the sequence selector.
`t5mem_ws` and `t5mem_ws_wma` are those without it, from the study on masked language modelling and
question answering (section 5): their decoder attends to the slots alone.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

from fairseq.dataclass import ChoiceEnum
from fairseq.models import register_model, register_model_architecture
from torch import Tensor

from fairseq_memattn.errors import MemAttnError, check_fields, option, size_option
from fairseq_memattn.models.abc_config import set_defaults
from fairseq_memattn.models.t5 import T5, T5Config
from fairseq_memattn.modules.t5_stacks import T5Decoder, T5MemEncoder, memory_decoder
from fairseq_memattn.networks.t5mem_encoder import (
    QUERIES,
    SELECTOR_BIASES,
    SEQUENCE_POSITIONS,
    T5MemSizes,
)

QueryChoice = ChoiceEnum(list(QUERIES))
PositionChoice = ChoiceEnum(list(SEQUENCE_POSITIONS))
BiasChoice = ChoiceEnum(list(SELECTOR_BIASES))


@dataclass
class T5MemConfig(T5Config):
    """T5's flags and T5Mem's. The study has two memory tokens; the paper gives no number."""

    t5mem_slots: int = size_option(2, "memory tokens in the slot of a sequence")
    t5mem_sequences: int = size_option(
        8,
        "largest number of sequences in an input, the current one included. A model trained on "
        "fewer sequences accepts more, but the distances that did not occur in training are not "
        "learned",
    )
    t5mem_selector_query: QueryChoice = option(  # type: ignore[valid-type]
        "embedding",
        "query of the sequence selector: the embedded previous token, with one selection for all "
        "layers (embedding), or the input of each layer's cross attention (layer)",
    )
    t5mem_sequence_positions: PositionChoice = option(  # type: ignore[valid-type]
        SEQUENCE_POSITIONS[0],
        "what slots know of the order of sequences: a learned vector for the distance from the "
        "current one (learned), or nothing, as in the papers (none)",
    )
    t5mem_selector_bias: BiasChoice = option(  # type: ignore[valid-type]
        SELECTOR_BIASES[0],
        "what the selector adds to a sequence's logit: a learned number for its distance from the "
        "current one, which begins with most of the weight (distance), or nothing, as in the "
        "papers (none)",
    )


class Design(NamedTuple):
    """linears: 2 gives slots their own output projection; ffns: 2 their own feed-forward layer.

    mem_attention, selector: as in `T5MemSizes`
    """

    linears: int
    ffns: int
    mem_attention: bool = True
    selector: bool = True


DESIGNS = {
    "t5mem_v1": Design(linears=1, ffns=2),
    "t5mem_v2": Design(linears=1, ffns=1),
    "t5mem_v3": Design(linears=2, ffns=2),
    "t5mem_v4": Design(linears=2, ffns=1),
    "t5mem_ws": Design(linears=2, ffns=1, selector=False),
    "t5mem_ws_wma": Design(linears=2, ffns=1, mem_attention=False, selector=False),
}


class T5Mem(T5):
    """T5Mem's encoder and decoder.

    design: which of the papers' models
    takes_sequences: tells `--task document_translation` to pass each sentence as a sequence
    """

    config: ClassVar[type[T5Config]] = T5MemConfig
    design: ClassVar[Design]
    takes_sequences: ClassVar[bool] = True

    @classmethod
    def build_model(cls, args: Any, task: Any) -> T5:
        model = super().build_model(args, task)
        most = model.max_sequences()
        context = getattr(getattr(task, "cfg", None), "source_context", 0)
        if context + 1 > most:
            raise MemAttnError(
                f"--source-context {context} and the current sentence are more sequences than "
                f"--t5mem-sequences {most}"
            )
        return model

    @classmethod
    def build_sizes(cls, args: Any, side: str, dictionary: Any, task: Any) -> T5MemSizes:
        check_fields(args, T5MemConfig)
        design = cls.design
        separator = getattr(getattr(task, "cfg", None), "context_separator", None)
        return T5MemSizes(
            **vars(super().build_sizes(args, side, dictionary, task)),
            slots=args.t5mem_slots,
            sequences=args.t5mem_sequences,
            separate_slot_output=design.linears == 2,
            separate_slot_ffn=design.ffns == 2,
            mem_attention=design.mem_attention,
            selector=design.selector,
            selector_query=str(args.t5mem_selector_query),
            sequence_positions=str(args.t5mem_sequence_positions),
            selector_bias=str(args.t5mem_selector_bias),
            separator=None if separator is None else dictionary.index(separator),
        )

    @classmethod
    def build_encoder(cls, args: Any, dictionary: Any, table: Any, sizes: Any) -> T5MemEncoder:
        return T5MemEncoder(dictionary, table, sizes, args.max_source_positions)

    @classmethod
    def build_decoder(cls, args: Any, dictionary: Any, table: Any, sizes: Any) -> T5Decoder:
        return memory_decoder(sizes)(dictionary, table, sizes, args.max_target_positions)

    def max_sequences(self) -> int:
        """The largest number of sequences in an input, the current one included."""
        return self.encoder.sizes.sequences

    def forward(
        self,
        src_tokens: Tensor,
        src_lengths: Any,
        prev_output_tokens: Tensor,
        context_tokens: Tensor | None = None,
        context_padding_mask: Tensor | None = None,
        target_context: Tensor | None = None,
        **options: Any,
    ) -> tuple[Tensor, dict[str, Any]]:
        """prev_output_tokens: (B, T)
        The other arguments are those of `T5MemEncoder`; options are the decoder's.

        Returns logits (B, T, symbols), and the decoder's report.
        """
        encoded = self.encoder(
            src_tokens, src_lengths, context_tokens, context_padding_mask, target_context
        )
        return self.decoder(prev_output_tokens, encoded, **options)


def base(args: Any) -> None:
    """The papers' size: 2 + 2 layers of 512, feed-forward 2048, 8 heads of 64."""
    set_defaults(args, T5MemConfig())


for _name, _design in DESIGNS.items():
    _model = type("".join(part.title() for part in _name.split("_")), (T5Mem,), {"design": _design})
    _model.__module__ = __name__
    register_model(_name)(_model)
    register_model_architecture(_name, _name)(partial(base))
