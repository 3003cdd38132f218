"""The flags of the GMAT family, in one place for the command line and for YAML."""

from dataclasses import dataclass, field
from typing import Any, Optional

from fairseq.dataclass import ChoiceEnum, FairseqDataclass

from fairseq_memattn.attention.controls import CONTROLS, RIVALS
from fairseq_memattn.errors import MemAttnError, check_least, flag
from fairseq_memattn.models.abc_config import ABCDecoderConfig, set_defaults
from fairseq_memattn.modules.gmat_attention import SPARSITIES
from fairseq_memattn.modules.gmat_positions import BLOCK

UNTIED = ("none", "qkv", "qkvo")
# Classes made while running, which mypy takes for variables.
KINDS = ChoiceEnum(list(SPARSITIES))
PROJECTIONS = ChoiceEnum(list(UNTIED))
DECODER_CONTROLS = ChoiceEnum([*CONTROLS, *RIVALS])


@dataclass
class GMATConfig(FairseqDataclass):
    """What every encoder with a global memory needs."""

    gmat_sparsity: KINDS = field(  # type: ignore[valid-type]
        default="chunks",
        metadata={
            "help": "what tokens see of one another, beside the memory: their own of contiguous "
            "chunks, what they meet by locality-sensitive hashing, or a window around them"
        },
    )
    gmat_chunk: Optional[int] = field(  # noqa: UP045 (fairseq reads no other form)
        default=None,
        metadata={
            "help": "tokens of a chunk; 512 unless told, with lsh Reformer's 64. Another one may "
            "be chosen after training"
        },
    )
    gmat_memory: int = field(
        default=64,
        metadata={
            "help": "M, vectors of the global memory; 0 is none. Fewer may be chosen after "
            "training: the first ones stay"
        },
    )
    gmat_memory_projections: PROJECTIONS = field(  # type: ignore[valid-type]
        default="none",
        metadata={
            "help": "projections of the attention that updates the memory, queries, keys, values "
            "and outputs, instead of sharing those that update tokens"
        },
    )
    gmat_window: int = field(
        default=256,
        metadata={"help": "with --gmat-sparsity window, tokens seen on either side of each"},
    )
    gmat_lsh_rounds: int = field(default=8, metadata={"help": "rounds of hashing"})
    gmat_lsh_buckets: int = field(
        default=0,
        metadata={
            "help": "buckets of each round, an even number; 0 is Reformer's choice, twice as many "
            "as the longest sequence that the task allows has chunks"
        },
    )
    gmat_position_block: int = field(
        default=BLOCK,
        metadata={
            "help": "N of the learned positions, sums of two vectors, of p mod N and of p div N: a "
            "model trained on sequences of N tokens goes on to longer ones"
        },
    )
    gmat_compress_after: int = field(
        default=0,
        metadata={
            "help": "N_c, layers after which the memory is all that is kept of the input; 0 keeps "
            "the tokens"
        },
    )
    gmat_memory_layers: int = field(
        default=0,
        metadata={"help": "N_m, layers on the memory alone after those; the others decompress"},
    )


@dataclass
class GMATBertConfig(GMATConfig):
    """What the masked language model adds."""

    gmat_layer_norm_eps: float = field(
        default=1e-5,
        metadata={"help": "what layer norms add to the variance; RoBERTa's; BERT has 1e-12"},
    )


@dataclass
class GenBertConfig(GMATBertConfig):
    """What the encoder-decoder of one set of weights adds; sizes are BERT-base's."""

    encoder_layers: int = field(default=12, metadata={"help": "layers, which decode as well"})
    decoder_layers: Optional[int] = field(  # noqa: UP045 (fairseq reads no other form)
        default=None,
        metadata={"help": "how many of them decode, the last ones; all unless told, as in GenBERT"},
    )
    encoder_embed_dim: int = field(default=768, metadata={"help": "size of the states"})
    encoder_ffn_embed_dim: int = field(
        default=3072, metadata={"help": "inner size of the feed-forward layers"}
    )
    encoder_attention_heads: int = field(default=12, metadata={"help": "heads of attention"})
    encoder_normalize_before: bool = field(
        default=False, metadata={"help": "norms before each block and not behind it, as in BERT"}
    )
    dropout: float = field(default=0.1, metadata={"help": "dropout of states"})
    attention_dropout: float = field(default=0.1, metadata={"help": "of attention weights"})
    activation_dropout: float = field(
        default=0.0, metadata={"help": "inside the feed-forward layers"}
    )
    max_source_positions: int = field(default=1024, metadata={"help": "of the longest source"})
    max_target_positions: int = field(default=1024, metadata={"help": "of the longest target"})


@dataclass
class GMATTransformerConfig(GMATConfig, ABCDecoderConfig):
    """What the encoder-decoder adds: ABC's flags, whose default here is softmax attention."""

    gmat_decoder_control: DECODER_CONTROLS = field(  # type: ignore[valid-type]
        default="mlp",
        metadata={
            "help": "control strategy of a decoder with --abc-causal-slots or --abc-cross-slots"
        },
    )
    abc_causal_slots: int = field(
        default=0,
        metadata={
            "help": "memory slots of the decoder's causal attention; 0 means softmax attention"
        },
    )
    abc_cross_slots: int = field(
        default=0,
        metadata={
            "help": "memory slots of the decoder's cross attention; 0 means softmax attention"
        },
    )


def settle(args: Any, config: GMATConfig, longest: int) -> None:
    """Gives args what neither user nor architecture has set, and refuses what makes no sense.

    longest: tokens of the longest sequence that the task allows

    Raises MemAttnError with one sentence that names the flag and the value.
    """
    set_defaults(args, config)
    if args.gmat_chunk is None:
        args.gmat_chunk = 64 if str(args.gmat_sparsity) == "lsh" else 512
    for name, least in (
        ("gmat_chunk", 1),
        ("gmat_memory", 0),
        ("gmat_window", 0),
        ("gmat_lsh_rounds", 1),
        ("gmat_lsh_buckets", 0),
        ("gmat_position_block", 1),
        ("gmat_compress_after", 0),
        ("gmat_memory_layers", 0),
    ):
        check_least(args, name, least)
    for name, choices in (
        ("gmat_sparsity", SPARSITIES),
        ("gmat_memory_projections", UNTIED),
    ):
        if str(getattr(args, name)) not in choices:
            raise MemAttnError(
                f"{flag(name)} must be one of {', '.join(choices)}, but is {getattr(args, name)}"
            )
    if args.gmat_lsh_buckets % 2:
        raise MemAttnError(f"--gmat-lsh-buckets must be even, but is {args.gmat_lsh_buckets}")
    if not args.gmat_lsh_buckets:
        args.gmat_lsh_buckets = 2 * -(-longest // args.gmat_chunk)
    _check_compression(args)


def _check_compression(args: Any) -> None:
    after, alone = args.gmat_compress_after, args.gmat_memory_layers
    if alone and not after:
        raise MemAttnError(
            f"--gmat-memory-layers must be 0 without --gmat-compress-after, but is {alone}"
        )
    if not after:
        return
    if not args.gmat_memory:
        raise MemAttnError(
            f"--gmat-compress-after {after} keeps the memory alone, so --gmat-memory must not be 0"
        )
    if after + alone >= args.encoder_layers:
        raise MemAttnError(
            f"--gmat-compress-after {after} and --gmat-memory-layers {alone} must leave some of "
            f"the {args.encoder_layers} --encoder-layers to decompress"
        )
    if getattr(args, "encoder_layerdrop", 0):
        raise MemAttnError("--encoder-layerdrop does not work with --gmat-compress-after")
    if getattr(args, "no_token_positional_embeddings", False):
        raise MemAttnError(
            "--no-token-positional-embeddings does not work with --gmat-compress-after, which "
            "decompresses into embeddings of positions"
        )
