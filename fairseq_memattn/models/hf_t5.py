"""Converts a T5 saved by `transformers` to `t5`: options, weights and vocabulary.

T5's vocabulary starts with padding 0, end of sentence 1 and unknown 2. fairseq's dictionaries start
with four symbols, `<s>`, `<pad>`, `</s>` and `<unk>`. T5's decoder starts from the padding symbol.
Therefore T5's first row becomes both `<s>`, from which the decoder starts here, and `<pad>`; the
other rows keep their order.
"""

import re
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.models.hf_checks import (
    checked_symbols,
    embeddings,
    rate,
    refuse_unlike,
    shape_of,
    size,
    unused_symbols,
)

# The required value of a key of config.json, and transformers' default for an absent key. Any
# other value belongs to another model than the T5 of 2020 (version 1.0).
REQUIRED = {
    "model_type": ("t5", None),
    "feed_forward_proj": ("relu", "relu"),
    "tie_word_embeddings": (True, True),
    "scale_decoder_outputs": (True, True),
    "layer_norm_epsilon": (1e-6, 1e-6),
    "pad_token_id": (0, 0),
    "eos_token_id": (1, 1),
    "decoder_start_token_id": (0, 0),
}
SIZES = ("d_model", "d_kv", "d_ff", "num_layers", "num_heads", "vocab_size")

PARTS = {"encoder": ("attention", "ffn"), "decoder": ("attention", "cross_attention", "ffn")}
LEAVES = {
    "layer_norm": "norm",
    "q": "block.q_proj",
    "k": "block.k_proj",
    "v": "block.v_proj",
    "o": "block.out_proj",
    "wi": "block.wi",
    "wo": "block.wo",
}
BLOCK = re.compile(r"(encoder|decoder)\.block\.(\d+)\.layer\.(\d)\.(?:\w+\.)?(\w+)\.weight")
POSITIONS = re.compile(
    r"(encoder|decoder)\.block\.0\.layer\.0\.SelfAttention\.relative_attention_bias\.weight"
)
TABLES = (
    "shared.weight",
    "encoder.embed_tokens.weight",
    "decoder.embed_tokens.weight",
    "lm_head.weight",
)
# Contained in the first public checkpoints, but read by no version of T5 nor by transformers.
UNREAD = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"


def options(config: dict[str, Any]) -> dict[str, Any]:
    """The options of `--arch t5` for a config.json.

    Raises MemAttnError for a model that is not a T5 of version 1.0 and for a missing size.
    """
    refuse_unlike("T5 1.0", config, REQUIRED, SIZES)
    layers = config["num_layers"]
    sizes = {
        "embed_dim": config["d_model"],
        "ffn_embed_dim": config["d_ff"],
        "attention_heads": config["num_heads"],
    }
    sides = {f"{side}_{name}": size for side in PARTS for name, size in sizes.items()}
    whole = config["num_heads"] * config["d_kv"] == config["d_model"]
    return {
        **sides,
        "encoder_layers": layers,
        "decoder_layers": size(config, "num_decoder_layers", layers),
        "t5_head_dim": 0 if whole else config["d_kv"],
        "t5_position_buckets": size(config, "relative_attention_num_buckets", 32),
        "t5_max_distance": size(config, "relative_attention_max_distance", 128),
        "dropout": rate(config, "dropout_rate", 0.1),
        "share_all_embeddings": True,
    }


def sizes(saved: dict[str, Tensor]) -> dict[str, int]:
    """The sizes of weights by transformers' names, by the keys of config.json."""
    first = "encoder.block.0.layer"
    buckets = shape_of(saved, f"{first}.0.SelfAttention.relative_attention_bias.weight")
    table = shape_of(saved, next((name for name in TABLES if name in saved), TABLES[0]))
    blocks = {match.group(1, 2) for match in map(BLOCK.fullmatch, saved) if match}
    sides = [side for side, _ in blocks]
    return {
        "vocab_size": table[0],
        "d_model": table[1],
        "d_kv": shape_of(saved, f"{first}.0.SelfAttention.q.weight")[0] // max(buckets[1], 1),
        "d_ff": shape_of(saved, f"{first}.1.DenseReluDense.wi.weight")[0],
        "num_layers": sides.count("encoder"),
        "num_decoder_layers": sides.count("decoder"),
        "relative_attention_num_buckets": buckets[0],
        "num_heads": buckets[1],
    }


def weights(saved: dict[str, Tensor]) -> tuple[dict[str, Tensor], list[str]]:
    """The weights of a `t5`, in float32, and the names of the weights that it leaves out.

    saved: by transformers' names

    Raises MemAttnError for embeddings that are not tied and for a name that T5 does not have.
    """
    table = embeddings(saved, TABLES, "T5 1.0").float()
    ours = {f"{side}.embed_tokens.weight": torch.cat([table[:1], table]) for side in PARTS}
    ours["decoder.embed_tokens.weight"] = ours["encoder.embed_tokens.weight"]
    rest = [name for name in saved if name not in TABLES and name != UNREAD]
    ours |= {our_name(name): saved[name].float() for name in rest}
    return ours, [UNREAD] if UNREAD in saved else []


def our_name(name: str) -> str:
    """Our name of a weight of transformers' T5 that is not an embedding table."""
    positions = POSITIONS.fullmatch(name)
    if positions:
        return f"{positions[1]}.position_bias.table"
    if name in ("encoder.final_layer_norm.weight", "decoder.final_layer_norm.weight"):
        return name.replace("final_layer_norm", "final_norm")
    block = BLOCK.fullmatch(name)
    if block:
        side, layer, part, leaf = block.groups()
        if int(part) < len(PARTS[side]) and leaf in LEAVES:
            return f"{side}.layers.{layer}.{PARTS[side][int(part)]}.{LEAVES[leaf]}.weight"
    raise MemAttnError(f"the weights contain {name}, which is not part of T5 1.0")


def symbols(pieces: Sequence[str], sentinels: int, vocab_size: int) -> list[str]:
    """The symbols after fairseq's first four, in the order of T5's vocabulary.

    pieces: those of the SentencePiece model, the three special ones first
    sentinels: how many `<extra_id_N>` follow the pieces; they count down to `<extra_id_0>`
    vocab_size: rows of T5's table; unused rows get fairseq's names for them

    Raises MemAttnError for sizes that do not fit and for pieces that a dictionary cannot hold.
    """
    unused = vocab_size - len(pieces) - sentinels
    if sentinels < 0 or unused < 0:
        raise MemAttnError(
            f"--extra-ids must be from 0 to {vocab_size - len(pieces)}, config.json's vocab_size "
            f"{vocab_size} less the {len(pieces)} pieces, but is {sentinels}"
        )
    names = list(pieces[3:])
    names += [f"<extra_id_{number}>" for number in reversed(range(sentinels))]
    return checked_symbols([*names, *unused_symbols(unused)])
