"""T5 (Raffel et al., 2020), the baseline of the T5Mem papers.

`t5` has the size of the papers' baseline, 2 + 2 layers; `t5_small` that of the published model.
"""

from argparse import ArgumentParser
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from fairseq.dataclass import FairseqDataclass
from fairseq.models import FairseqEncoderDecoderModel, register_model, register_model_architecture
from torch import Tensor

from fairseq_memattn.errors import (
    LARGEST,
    MOST_LAYERS,
    MemAttnError,
    check_fields,
    option,
    size_option,
)
from fairseq_memattn.models.abc_config import (
    add_dataclass_flags,
    as_namespace,
    check_joined,
    prefer,
    set_defaults,
)
from fairseq_memattn.modules.t5_stacks import T5Decoder, T5Encoder
from fairseq_memattn.networks.t5_layers import T5Embedding, T5PositionBias, T5Sizes
from fairseq_memattn.networks.t5mem_encoder import T5MemPositionBias


@dataclass
class T5Config(FairseqDataclass):
    """The flags of T5. The defaults are the baseline of the T5Mem papers."""

    encoder_layers: int = size_option(2, "layers of the encoder", most=MOST_LAYERS)
    encoder_embed_dim: int = size_option(512, "size of the encoder's states (T5's d_model)")
    encoder_ffn_embed_dim: int = size_option(
        2048, "inner size of the encoder's feed-forward layers (T5's d_ff)"
    )
    encoder_attention_heads: int = size_option(8, "heads of the encoder's attention")
    decoder_layers: int = size_option(2, "layers of the decoder", most=MOST_LAYERS)
    decoder_embed_dim: int = size_option(512, "size of the decoder's states")
    decoder_ffn_embed_dim: int = size_option(
        2048, "inner size of the decoder's feed-forward layers"
    )
    decoder_attention_heads: int = size_option(8, "heads of the decoder's attention")
    t5_head_dim: int = size_option(
        0,
        "size of a head (T5's d_kv); 0 is the size of the states divided by the number of heads",
        least=0,
    )
    t5_position_buckets: int = size_option(32, "buckets of relative positions")
    t5_max_distance: int = size_option(
        128, "distance from which on a single bucket holds all", most=LARGEST
    )
    dropout: float = option(0.1, "dropout of states, attention weights and feed-forward", rate=True)
    share_all_embeddings: bool = option(
        False,
        "use one embedding table for source and target, as in T5. Needs one dictionary for both. "
        "The decoder's input and output share a table in any case",
    )
    t5_scale_embeddings: bool = option(
        False,
        "initialise embeddings with the standard deviation 1/sqrt(size) in place of 1 and "
        "multiply them by sqrt(size) in the forward pass. The function is the same, but Adam, "
        "which learns T5's embeddings slowly, learns these faster. Checkpoints load with and "
        "without this flag",
    )
    t5_scale_positions: bool = option(
        False,
        "multiply the relative position biases by sqrt(size) in the forward pass, and initialise "
        "them accordingly. The function is the same, but Adam learns T5's position biases, of "
        "which there are few, sqrt(size) times as fast. Checkpoints load with and without this "
        "flag",
    )
    max_source_positions: int = size_option(1024, "tokens of the longest source", most=LARGEST)
    max_target_positions: int = size_option(1024, "tokens of the longest target", most=LARGEST)


@register_model("t5")
class T5(FairseqEncoderDecoderModel):
    """T5's encoder and decoder.

    config: the flags and their defaults
    """

    config: ClassVar[type[T5Config]] = T5Config

    @classmethod
    def add_args(cls, parser: ArgumentParser) -> None:
        add_dataclass_flags(parser, cls.config())

    @classmethod
    def build_model(cls, args: Any, task: Any) -> "T5":
        args = as_namespace(args)
        set_defaults(args, cls.config())
        if getattr(getattr(task, "cfg", None), "left_pad_target", False):
            raise MemAttnError("--left-pad-target does not work with --arch t5")
        source, target = task.source_dictionary, task.target_dictionary
        encoder_sizes = cls.build_sizes(args, "encoder", source, task)
        decoder_sizes = cls.build_sizes(args, "decoder", target, task)
        source_table = T5Embedding(encoder_sizes)
        target_table = source_table
        if args.share_all_embeddings:
            check_joined("--share-all-embeddings", source, target)
            dims = (args.encoder_embed_dim, args.decoder_embed_dim)
            if dims[0] != dims[1]:
                raise MemAttnError(
                    "--share-all-embeddings needs equal --encoder-embed-dim and "
                    f"--decoder-embed-dim, but they are {dims[0]} and {dims[1]}"
                )
        else:
            target_table = T5Embedding(decoder_sizes)
        encoder = cls.build_encoder(args, source, source_table, encoder_sizes)
        decoder = cls.build_decoder(args, target, target_table, decoder_sizes)
        model = cls(encoder, decoder)
        model.mark_scaled()
        return model

    @classmethod
    def build_sizes(cls, args: Any, side: str, dictionary: Any, task: Any) -> T5Sizes:
        """The sizes of one side, "encoder" or "decoder".

        Raises MemAttnError, and ValueError, for sizes out of range or that do not fit together.
        """
        sizes = ("layers", "embed_dim", "ffn_embed_dim", "attention_heads")
        layers, embed_dim, ffn_dim, heads = (getattr(args, f"{side}_{name}") for name in sizes)
        check_fields(args, T5Config)
        if not args.t5_head_dim and embed_dim % heads:
            raise MemAttnError(
                f"--{side}-attention-heads must divide --{side}-embed-dim {embed_dim}, but is "
                f"{heads}; or set --t5-head-dim"
            )
        return T5Sizes(
            vocab_size=len(dictionary),
            layers=layers,
            embed_dim=embed_dim,
            ffn_dim=ffn_dim,
            heads=heads,
            head_dim=args.t5_head_dim or embed_dim // heads,
            source_dim=args.encoder_embed_dim,
            dropout=args.dropout,
            buckets=args.t5_position_buckets,
            max_distance=args.t5_max_distance,
            scale_embedding=args.t5_scale_embeddings,
            scale_positions=args.t5_scale_positions,
            pad=dictionary.pad(),
        )

    @classmethod
    def build_encoder(cls, args: Any, dictionary: Any, table: Any, sizes: Any) -> T5Encoder:
        return T5Encoder(dictionary, table, sizes, args.max_source_positions)

    @classmethod
    def build_decoder(cls, args: Any, dictionary: Any, table: Any, sizes: Any) -> T5Decoder:
        return T5Decoder(dictionary, table, sizes, args.max_target_positions)

    def mark_scaled(self) -> None:
        """Gives the tables that are stored scaled a buffer `scale`, which marks the checkpoint."""
        for name, factor in self._factors():
            if factor != 1:
                self.get_submodule(name).register_buffer("scale", torch.tensor(factor))

    def _factors(self) -> Iterator[tuple[str, float]]:
        """The names of the embeddings and the position biases, and what multiplies each."""
        for name, part in self.named_modules(remove_duplicate=False):
            if isinstance(part, T5Embedding | T5PositionBias | T5MemPositionBias):
                yield name, part.factor

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> None:
        """fairseq's hook, called before a checkpoint is loaded: tables get this model's scales."""
        super().upgrade_state_dict_named(state_dict, name)
        for part, factor in self._factors():
            scale, table = f"{part}.scale", f"{part}.table"
            if table not in state_dict:
                table = f"{part}.weight"
            if table not in state_dict or (scale in state_dict) == (factor != 1):
                continue
            if factor != 1:
                state_dict[scale] = torch.tensor(factor)
                state_dict[table] = state_dict[table] / factor
            else:
                del state_dict[scale]
                size = getattr(self, part.partition(".")[0]).sizes.embed_dim
                state_dict[table] = state_dict[table] * size**0.5


@register_model_architecture("t5", "t5")
def base(args: Any) -> None:
    """The papers' baseline: 2 + 2 layers of 512, feed-forward 2048, 8 heads of 64."""
    set_defaults(args, T5Config())


@register_model_architecture("t5", "t5_small")
def small(args: Any) -> None:
    """The published T5-small: 6 + 6 layers."""
    prefer(args, encoder_layers=6, decoder_layers=6)
    base(args)
