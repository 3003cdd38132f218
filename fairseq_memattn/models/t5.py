"""T5 (Raffel et al., 2020), the baseline of the T5Mem papers.

`t5` has the size of the papers' baseline, 2 + 2 layers; `t5_small` that of the published model.
"""

from argparse import ArgumentParser
from typing import Any, ClassVar

from fairseq.models import (
    FairseqEncoderDecoderModel,
    register_model,
    register_model_architecture,
)

from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.models.t5_config import (
    T5Config,
    add_arguments,
    as_namespace,
    set_defaults,
    sizes,
)
from fairseq_memattn.modules.t5_embedding import T5Embedding
from fairseq_memattn.modules.t5_stacks import T5Decoder, T5Encoder


@register_model("t5")
class T5(FairseqEncoderDecoderModel):
    """T5's encoder and decoder.

    config: the flags and their defaults
    """

    config: ClassVar[type[T5Config]] = T5Config

    @classmethod
    def add_args(cls, parser: ArgumentParser) -> None:
        add_arguments(parser, cls.config())

    @classmethod
    def build_model(cls, args: Any, task: Any) -> "T5":
        args = as_namespace(args)
        set_defaults(args, cls.config())
        if getattr(getattr(task, "cfg", None), "left_pad_target", False):
            raise MemAttnError("--left-pad-target does not work with --arch t5")
        source, target = task.source_dictionary, task.target_dictionary
        encoder_sizes, decoder_sizes = sizes(args, "encoder"), sizes(args, "decoder")
        scaled = args.t5_scale_embeddings
        source_table = T5Embedding(source, encoder_sizes.embed_dim, scaled)
        target_table = source_table
        if args.share_all_embeddings:
            _check_shared(args, source, target)
        else:
            target_table = T5Embedding(target, decoder_sizes.embed_dim, scaled)
        encoder = cls.build_encoder(args, source, source_table, encoder_sizes)
        decoder = cls.build_decoder(args, target, target_table, decoder_sizes, task)
        return cls(encoder, decoder)

    @classmethod
    def build_encoder(cls, args: Any, dictionary: Any, table: Any, sizes: Any) -> T5Encoder:
        return T5Encoder(dictionary, table, sizes, args.encoder_layers, args.max_source_positions)

    @classmethod
    def build_decoder(
        cls, args: Any, dictionary: Any, table: Any, sizes: Any, task: Any
    ) -> T5Decoder:
        return T5Decoder(dictionary, table, sizes, args.decoder_layers, args.max_target_positions)

    def max_positions(self) -> tuple[int, int]:
        return self.encoder.max_positions(), self.decoder.max_positions()


def _check_shared(args: Any, source: Any, target: Any) -> None:
    if source.symbols != target.symbols:
        raise MemAttnError(
            "--share-all-embeddings needs one dictionary for source and target "
            f"(fairseq-preprocess --joined-dictionary), but the dictionaries, of {len(source)} and "
            f"{len(target)} symbols, differ"
        )
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
    args.encoder_layers = getattr(args, "encoder_layers", 6)
    args.decoder_layers = getattr(args, "decoder_layers", 6)
    base(args)
