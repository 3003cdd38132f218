"""A language model of Llama's shape with a control for each layer: `--arch abc_llama`."""

import json
from argparse import ArgumentParser
from dataclasses import dataclass
from typing import Any

from fairseq.dataclass import FairseqDataclass
from fairseq.models import FairseqLanguageModel, register_model, register_model_architecture

from fairseq_memattn.attention.ops.rotary import Rotary
from fairseq_memattn.errors import MOST_LAYERS, MemAttnError, check_fields, option, size_option
from fairseq_memattn.models.abc_config import (
    add_dataclass_flags,
    as_namespace,
    longest_text,
    set_defaults,
)
from fairseq_memattn.modules.bounded_decoder import BoundedDecoder
from fairseq_memattn.networks.decoder import FIRST_AND_LAST, DecoderSizes


@dataclass
class BoundedLlamaConfig(FairseqDataclass):
    """The flags, which are those of `networks.DecoderSizes`."""

    decoder_layers: int = size_option(8, "layers", most=MOST_LAYERS)
    decoder_embed_dim: int = size_option(512, "size of the states")
    decoder_ffn_embed_dim: int = size_option(
        0, "inner size of the feed-forward layers; 0 is 8 / 3 of the states, up to 32s", least=0
    )
    decoder_attention_heads: int = size_option(8, "heads of queries")
    abc_kv_heads: int = size_option(0, "heads of keys and values; 0 is those of queries", least=0)
    abc_controls: str = option(
        json.dumps([FIRST_AND_LAST]),
        "JSON list of the layers, the lowest first and beginning again after the last one: "
        '{"control": NAME, "slots": N} with options of the control, or "softmax"',
    )
    abc_qk_norm: bool = option(False, "normalise queries and keys, as Qwen3 does")
    abc_rotary_base: float = option(10000.0, "base of the rotary positions", least=1)
    untied_embeddings: bool = option(False, "give the output projection weights of its own")
    dropout: float = option(0.1, "dropout of embeddings and of the outputs of blocks", rate=True)
    attention_dropout: float = option(0.0, "dropout of attention", rate=True)


@register_model("abc_llama")
class BoundedLlama(FairseqLanguageModel):
    """RMS norm before each block, rotary positions, grouped queries, SwiGLU, no biases."""

    @classmethod
    def add_args(cls, parser: ArgumentParser) -> None:
        add_dataclass_flags(parser, BoundedLlamaConfig())

    @classmethod
    def build_model(cls, args: Any, task: Any) -> "BoundedLlama":
        """Raises MemAttnError, and ValueError, for flags out of range."""
        args = as_namespace(args)
        set_defaults(args, BoundedLlamaConfig())
        check_fields(args, BoundedLlamaConfig)
        positions, dictionary = longest_text(args, task), task.target_dictionary
        heads, keys = args.decoder_attention_heads, args.abc_kv_heads
        if args.decoder_embed_dim % heads or (keys and heads % keys):
            raise MemAttnError(
                f"--decoder-attention-heads must divide --decoder-embed-dim, and --abc-kv-heads "
                f"must divide it, but is {heads}"
            )
        options: dict[str, Any] = dict(
            vocab_size=len(dictionary),
            embed_dim=args.decoder_embed_dim,
            ffn_dim=args.decoder_ffn_embed_dim or None,
            layers=args.decoder_layers,
            heads=heads,
            kv_heads=keys or None,
            rotary=Rotary(args.abc_rotary_base),
            qk_norm=args.abc_qk_norm,
            tied=not args.untied_embeddings,
            dropout=args.dropout,
            attention_dropout=args.attention_dropout,
            max_positions=positions,
        )
        controls = controls_of(args.abc_controls)
        try:
            decoder = BoundedDecoder(
                dictionary, DecoderSizes(**options, controls=controls), positions
            )
        except (TypeError, ValueError) as error:
            raise MemAttnError(f"--abc-controls has a layer that is refused: {error}") from None
        return cls(decoder)


def controls_of(text: str) -> tuple[Any, ...]:
    """The layers of --abc-controls."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list):
        raise MemAttnError(
            f'--abc-controls must be JSON such as [{{"control": "sinks", "slots": 64}}], but is '
            f"{text!r}"
        )
    return tuple(found)


@register_model_architecture("abc_llama", "abc_llama")
def base(args: Any) -> None:
    """8 layers of 512, 8 heads."""
    set_defaults(args, BoundedLlamaConfig())
