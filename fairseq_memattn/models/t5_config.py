"""The flags of T5 and T5Mem, for the command line and for YAML."""

from dataclasses import dataclass
from typing import Any

from fairseq.dataclass import FairseqDataclass

from fairseq_memattn.errors import (
    LARGEST,
    MOST_LAYERS,
    MemAttnError,
    check_fields,
    option,
    size_option,
)
from fairseq_memattn.networks.t5_layers import T5Sizes


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


def sizes(args: Any, side: str, dictionary: Any) -> T5Sizes:
    """The sizes of one side, "encoder" or "decoder".

    Raises MemAttnError for sizes that are out of range or do not fit together.
    """
    embed_dim, heads = (
        getattr(args, f"{side}_{name}") for name in ("embed_dim", "attention_heads")
    )
    check_fields(args, T5Config)
    if not args.t5_head_dim and embed_dim % heads:
        raise MemAttnError(
            f"--{side}-attention-heads must divide --{side}-embed-dim {embed_dim}, but is "
            f"{heads}; or set --t5-head-dim"
        )
    try:
        return T5Sizes(
            vocab_size=len(dictionary),
            layers=getattr(args, f"{side}_layers"),
            embed_dim=embed_dim,
            ffn_dim=getattr(args, f"{side}_ffn_embed_dim"),
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
    except ValueError as error:  # the other fields are checked
        raise MemAttnError(
            f"--t5-position-buckets {args.t5_position_buckets} with --t5-max-distance "
            f"{args.t5_max_distance}: {error}"
        ) from None
