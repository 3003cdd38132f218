"""The flags of the GMAT family, for the command line and for YAML."""

from dataclasses import dataclass
from typing import Any, Optional

from fairseq.dataclass import ChoiceEnum, FairseqDataclass

from fairseq_memattn.attention.nn.global_memory import SPARSITIES, Sparsity
from fairseq_memattn.errors import MOST_LAYERS, MemAttnError, check_fields, option, size_option
from fairseq_memattn.models.abc_config import ABCDecoderConfig, set_defaults
from fairseq_memattn.modules.gmat_encoder import told_by_flags
from fairseq_memattn.networks.positions import BLOCK, MAX_POSITIONS

UNTIED = ("none", "qkv", "qkvo")
PARTS = ("qr", "r")
# Classes made at run time, which mypy takes for variables.
KINDS = ChoiceEnum(list(SPARSITIES))
PROJECTIONS = ChoiceEnum(list(UNTIED))
POSITIONS = ChoiceEnum(list(PARTS))


@dataclass
class GMATConfig(FairseqDataclass):
    """The flags of every encoder with a global memory."""

    gmat_sparsity: KINDS = option(  # type: ignore[valid-type]
        "chunks",
        "which tokens a token attends to, besides the memory: those of its chunk of contiguous "
        "tokens (chunks), those it meets by locality-sensitive hashing (lsh), or a window around "
        "it (window)",
    )
    gmat_chunk: Optional[int] = option(  # noqa: UP045 (fairseq reads no other form)
        None,
        "tokens of a chunk (default: 512; with lsh 64, as in Reformer). It may be changed after "
        "training",
        least=1,
    )
    gmat_memory: int = size_option(
        64,
        "M, the number of memory vectors; 0 is no memory. It may be reduced after training, which "
        "keeps the first vectors",
        least=0,
    )
    gmat_memory_positions: bool = option(
        False,
        "gives each memory vector the position embedding of its part of the sequence, which is "
        "divided in M equal parts. Without it memory vectors have no position, as in the paper",
    )
    gmat_memory_projections: PROJECTIONS = option(  # type: ignore[valid-type]
        "none",
        "projections that the attention which updates the memory does not share with the "
        "attention which updates the tokens: queries, keys and values (qkv), and outputs (qkvo)",
    )
    gmat_window: int = option(
        256, "with --gmat-sparsity window, the tokens on either side that a token sees", least=1
    )
    gmat_lsh_rounds: int = size_option(8, "with lsh, rounds of hashing")
    gmat_lsh_buckets: int = size_option(
        0,
        "with lsh, buckets of each round, an even number; 0 is twice the number of chunks in the "
        "longest sequence that the task allows, as in Reformer",
        least=0,
    )
    gmat_position_block: int = size_option(
        BLOCK,
        "N of the learned positions. Position p has the sum of two vectors, of p mod N and of p "
        "div N, so that a model trained on sequences of N tokens can continue with longer ones",
    )
    gmat_positions: POSITIONS = option(  # type: ignore[valid-type]
        "qr",
        "parts of the learned positions: the vectors of q = p div N and r = p mod N (qr), or of r "
        "alone (r), as the paper has it with BERT and with sequences of up to N tokens",
    )
    gmat_compress_after: int = option(
        0,
        "N_c, the number of layers after which only the memory is kept; 0 keeps the tokens",
        least=0,
    )
    gmat_memory_layers: int = option(
        0,
        "N_m, the number of layers after those that work on the memory alone; the remaining "
        "layers decompress it",
        least=0,
    )


@dataclass
class GMATBertConfig(GMATConfig):
    gmat_layer_norm_eps: float = option(
        1e-5,
        "epsilon that layer norms add to the variance; the default is RoBERTa's, BERT has 1e-12",
        least=1e-12,
        most=1,
    )


@dataclass
class GenBertConfig(GMATBertConfig):
    """The flags of GenBERT; its default sizes are those of BERT-base."""

    encoder_layers: int = size_option(12, "layers of the encoder", most=MOST_LAYERS)
    decoder_layers: Optional[int] = size_option(  # noqa: UP045 (fairseq reads no other form)
        None,
        "how many of the encoder's layers decode, counted from the last (default: all of them, as "
        "in GenBERT)",
        most=MOST_LAYERS,
    )
    encoder_embed_dim: int = size_option(768, "size of the states")
    encoder_ffn_embed_dim: int = size_option(3072, "inner size of the feed-forward layers")
    encoder_attention_heads: int = size_option(12, "heads of attention")
    encoder_normalize_before: bool = option(
        False, "layer norm before each block; BERT has it after each block"
    )
    dropout: float = option(0.1, "dropout of states", rate=True)
    attention_dropout: float = option(0.1, "dropout of attention weights", rate=True)
    activation_dropout: float = option(0.0, "dropout inside the feed-forward layers", rate=True)
    max_source_positions: int = option(1024, "tokens of the longest source", least=1)
    max_target_positions: int = option(1024, "tokens of the longest target", least=1)


@dataclass
class GMATTransformerConfig(GMATConfig, ABCDecoderConfig):
    """The flags of the encoder-decoder: ABC's for the decoder, with softmax as the default."""

    gmat_decoder_control: str = option(
        "mlp", "control strategy of a decoder with --abc-causal-slots or --abc-cross-slots"
    )
    abc_causal_slots: int = size_option(
        0, "memory slots of the decoder's causal attention; 0 means softmax attention", least=0
    )
    abc_cross_slots: int = size_option(
        0, "memory slots of the decoder's cross attention; 0 means softmax attention", least=0
    )


def resolve_defaults(args: Any, config: GMATConfig, longest: int) -> None:
    """Gives args the values that neither the user nor the architecture has set, and checks all.

    longest: tokens of the longest sequence that the task allows

    Raises MemAttnError with one sentence that names the flag and the value.
    """
    set_defaults(args, config)
    check_fields(args, type(config))
    with told_by_flags():
        args.gmat_chunk = Sparsity(
            str(args.gmat_sparsity),
            args.gmat_chunk,
            args.gmat_window,
            args.gmat_lsh_rounds,
            args.gmat_lsh_buckets or None,
        ).size
    if not args.gmat_lsh_buckets:
        args.gmat_lsh_buckets = 2 * -(-longest // args.gmat_chunk)


def check_positions(what: str, positions: int) -> None:
    """Raises MemAttnError for more positions than GMAT has vectors for."""
    if positions > MAX_POSITIONS:
        raise MemAttnError(
            f"{what} has {positions} positions, but GMAT's position embeddings end at "
            f"{MAX_POSITIONS}"
        )
