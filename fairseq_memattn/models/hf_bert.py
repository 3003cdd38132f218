"""Converts a BERT saved by `transformers` to `gmat_bert`: options, weights and vocabulary.

fairseq's dictionaries start with `<s>`, `<pad>`, `</s>` and `<unk>`, and those of its masked
language models end with `<mask>`. They take the place of BERT's [CLS], [PAD], [SEP], [UNK] and
[MASK]; the other pieces keep their order. The embedding of BERT's first segment, the only one that
a masked language model uses here, is added to the position embeddings.
"""

import re
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.models.hf_checks import (
    checked_symbols,
    rate,
    refuse_unlike,
    shape_of,
    tied,
    unused_symbols,
)
from fairseq_memattn.networks.positions import BLOCK, MAX_POSITIONS

# The required value of a key of config.json, and transformers' default for an absent key.
REQUIRED = {
    "model_type": ("bert", None),
    "hidden_act": ("gelu", "gelu"),
    "position_embedding_type": ("absolute", "absolute"),
    "max_position_embeddings": (BLOCK, BLOCK),
    "is_decoder": (False, False),
    "tie_word_embeddings": (True, True),
}
SIZES = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "vocab_size",
)
# BERT's pieces for fairseq's first four symbols, in fairseq's order, and for the last symbol.
FIRST, LAST = ("[CLS]", "[PAD]", "[SEP]", "[UNK]"), "[MASK]"
PAD = 1  # fairseq's padding symbol; its position tables start with PAD + 1 unused rows

ENCODER = "encoder.sentence_encoder"
EMBEDDINGS = "bert.embeddings"
WORDS = f"{EMBEDDINGS}.word_embeddings.weight"
OUTPUT = "cls.predictions.decoder.weight"
POSITIONS = f"{EMBEDDINGS}.position_embeddings.weight"
SEGMENTS = f"{EMBEDDINGS}.token_type_embeddings.weight"
BIASES = ("cls.predictions.bias", "cls.predictions.decoder.bias")
NEEDED = (WORDS, POSITIONS, SEGMENTS)
# Weights of pretraining on sentence pairs, and a buffer.
UNREAD = re.compile(r"cls\.seq_relationship\..*|bert\.pooler\..*|bert\.embeddings\.position_ids")

MODULES = {
    f"{EMBEDDINGS}.LayerNorm": f"{ENCODER}.layernorm_embedding",
    "cls.predictions.transform.dense": "encoder.lm_head.dense",
    "cls.predictions.transform.LayerNorm": "encoder.lm_head.layer_norm",
}
LAYER = re.compile(r"bert\.encoder\.layer\.(\d+)\.(.+)")
IN_LAYER = {
    "attention.self.query": "self_attn.q_proj",
    "attention.self.key": "self_attn.k_proj",
    "attention.self.value": "self_attn.v_proj",
    "attention.output.dense": "self_attn.out_proj",
    "attention.output.LayerNorm": "self_attn_layer_norm",
    "intermediate.dense": "fc1",
    "output.dense": "fc2",
    "output.LayerNorm": "final_layer_norm",
}
# Names of layer norm weights in the first public checkpoints.
OLD_LEAVES = {"gamma": "weight", "beta": "bias"}


def options(config: dict[str, Any]) -> dict[str, Any]:
    """The options of a `gmat_bert` without memory for a config.json.

    Raises MemAttnError for a model that is not a BERT and for a missing size.
    """
    refuse_unlike("BERT", config, REQUIRED, SIZES)
    return {
        "encoder_layers": config["num_hidden_layers"],
        "encoder_embed_dim": config["hidden_size"],
        "encoder_ffn_embed_dim": config["intermediate_size"],
        "encoder_attention_heads": config["num_attention_heads"],
        "dropout": rate(config, "hidden_dropout_prob", 0.1),
        "attention_dropout": rate(config, "attention_probs_dropout_prob", 0.1),
        "gmat_layer_norm_eps": rate(config, "layer_norm_eps", 1e-12),
        "gmat_memory": 0,
    }


def symbols(pieces: Sequence[str], vocab_size: int) -> tuple[list[str], Tensor]:
    """The symbols after fairseq's first four, without `<mask>`, and the order of BERT's rows.

    pieces: the lines of vocab.txt; vocab_size: rows of BERT's table

    Raises MemAttnError for sizes that do not fit, for a missing special piece, and for pieces that
    a dictionary cannot hold.
    """
    if len(pieces) > vocab_size:
        raise MemAttnError(
            f"config.json: vocab_size must be at least the {len(pieces)} lines of vocab.txt, but "
            f"is {vocab_size}"
        )
    names = [*pieces, *unused_symbols(vocab_size - len(pieces))]
    number = {name: row for row, name in reversed(list(enumerate(names)))}
    for special in (*FIRST, LAST):
        if special not in number:
            raise MemAttnError(f"vocab.txt lacks {special}")
    specials = {number[special] for special in (*FIRST, LAST)}
    rest = [row for row in range(vocab_size) if row not in specials]
    order = [*(number[special] for special in FIRST), *rest, number[LAST]]
    others = [names[row] for row in rest]
    checked_symbols([*others, "<mask>"])
    return others, torch.tensor(order)


def sizes(saved: dict[str, Tensor]) -> dict[str, int]:
    """The sizes of weights by transformers' names, by the keys of config.json."""
    words = shape_of(saved, WORDS)
    layers = [LAYER.fullmatch(name) for name in saved]
    return {
        "vocab_size": words[0],
        "hidden_size": words[1],
        "intermediate_size": shape_of(saved, "bert.encoder.layer.0.intermediate.dense.weight")[0],
        "num_hidden_layers": len({layer[1] for layer in layers if layer}),
    }


def weights(saved: dict[str, Tensor], order: Tensor) -> tuple[dict[str, Tensor], list[str]]:
    """The weights of a `gmat_bert`, in float32, and the names of the weights that it leaves out.

    saved: by transformers' names; order: of the rows of BERT's vocabulary, from `symbols`

    Raises MemAttnError for a name that BERT does not have, and for an output projection or bias
    that is not tied.
    """
    for name in NEEDED:
        if name not in saved:
            raise MemAttnError(f"the weights lack `{name}`, which is part of BERT")
    if len(saved[WORDS]) != len(order):
        raise MemAttnError(
            f"`{WORDS}` has {len(saved[WORDS])} rows, but config.json has vocab_size {len(order)}"
        )
    tied(saved, (WORDS, OUTPUT), "BERT")
    bias = tied(saved, BIASES, "BERT")
    unread = [name for name in saved if UNREAD.fullmatch(name)]
    done = {*NEEDED, OUTPUT, *BIASES, *unread}
    ours = {our_name(name): weight.float() for name, weight in saved.items() if name not in done}
    words = saved[WORDS].float()[order]
    ours[f"{ENCODER}.embed_tokens.weight"] = ours["encoder.lm_head.weight"] = words
    if bias is not None:
        ours["encoder.lm_head.bias"] = bias.float()[order]
    embed_dim = words.shape[1]
    positions = saved[POSITIONS].float() + saved[SEGMENTS][0].float()
    ours[f"{ENCODER}.embed_positions.weight"] = torch.cat(
        [torch.zeros(PAD + 1, embed_dim), positions]
    )
    ours[f"{ENCODER}.embed_positions.blocks"] = torch.zeros(MAX_POSITIONS // BLOCK, embed_dim)
    ours[f"{ENCODER}.version"] = torch.tensor([3.0])
    return ours, unread


def our_name(name: str) -> str:
    """Our name of a weight of transformers' BERT that is neither a table nor an output bias."""
    module, _, leaf = name.rpartition(".")
    leaf = OLD_LEAVES.get(leaf, leaf)
    if module in MODULES:
        return f"{MODULES[module]}.{leaf}"
    layer = LAYER.fullmatch(module)
    if layer and layer[2] in IN_LAYER:
        return f"{ENCODER}.layers.{layer[1]}.{IN_LAYER[layer[2]]}.{leaf}"
    raise MemAttnError(f"the weights contain {name}, which is not part of BERT")
