"""T5 (Raffel et al., 2020), the baseline of the T5Mem papers.

`t5` has the size of the papers' baseline, 2 + 2 layers; `t5_small` that of the published model.
"""

from argparse import ArgumentParser
from collections.abc import Iterator
from typing import Any, ClassVar

import torch
from fairseq.models import (
    FairseqEncoderDecoderModel,
    register_model,
    register_model_architecture,
)
from torch import Tensor

from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.models.abc_config import (
    add_dataclass_flags,
    as_namespace,
    check_joined,
    prefer,
    set_defaults,
)
from fairseq_memattn.models.t5_config import T5Config, sizes
from fairseq_memattn.modules.t5_stacks import T5Decoder, T5Encoder
from fairseq_memattn.networks.t5_layers import T5Embedding, T5PositionBias, T5Sizes
from fairseq_memattn.networks.t5mem_encoder import T5MemPositionBias


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
            _check_shared(args, source, target)
        else:
            target_table = T5Embedding(decoder_sizes)
        encoder = cls.build_encoder(args, source, source_table, encoder_sizes)
        decoder = cls.build_decoder(args, target, target_table, decoder_sizes)
        model = cls(encoder, decoder)
        model.mark_scaled()
        return model

    @classmethod
    def build_sizes(cls, args: Any, side: str, dictionary: Any, task: Any) -> T5Sizes:
        return sizes(args, side, dictionary)

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

    def max_positions(self) -> tuple[int, int]:
        return self.encoder.max_positions(), self.decoder.max_positions()


def _check_shared(args: Any, source: Any, target: Any) -> None:
    check_joined("--share-all-embeddings", source, target)
    if args.encoder_embed_dim != args.decoder_embed_dim:
        raise MemAttnError(
            "--share-all-embeddings needs --encoder-embed-dim and --decoder-embed-dim to be "
            f"equal, but they are {args.encoder_embed_dim} and {args.decoder_embed_dim}"
        )


@register_model_architecture("t5", "t5")
def base(args: Any) -> None:
    """The papers' baseline: 2 + 2 layers of 512, feed-forward 2048, 8 heads of 64."""
    set_defaults(args, T5Config())


@register_model_architecture("t5", "t5_small")
def small(args: Any) -> None:
    """The published T5-small: 6 + 6 layers."""
    prefer(args, encoder_layers=6, decoder_layers=6)
    base(args)
