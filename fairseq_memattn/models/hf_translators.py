"""Converts translators saved by `transformers` to `pretrained_transformer`: options and weights.

marian: the OPUS-MT models. Their dictionary has the end of sentence, unknown and padding at places
of their own; fairseq's dictionaries begin with `<s>`, `<pad>`, `</s>` and `<unk>`. `<s>`, which
Marian lacks, gets a bias that excludes it.
m2m_100: M2M-100 and NLLB-200. mbart: mBART-50. Their dictionaries begin as fairseq's do.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.models.hf_checks import (
    embeddings,
    rate,
    refuse_unlike,
    shape_of,
    size,
    unused_symbols,
)
from fairseq_memattn.networks.positions import marian_sinusoids

SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
EXCLUDED = -100.0  # a bias with which a symbol has no probability beside others
ACTIVATIONS = {
    **{name: name for name in ("relu", "gelu", "tanh", "linear", "swish")},
    **{"silu": "swish", "gelu_new": "gelu_accurate", "gelu_pytorch_tanh": "gelu_accurate"},
}
SIZES = ("d_model", "vocab_size", "max_position_embeddings")
OF_SIDE = {"layers": "layers", "ffn_dim": "ffn-embed-dim", "attention_heads": "attention-heads"}
POSITIONS = re.compile(r"model\.\w+\.embed_positions\.weights?")
TABLE = re.compile(r"(model\.(shared|\w+\.embed_tokens)|lm_head)\.weight")
OUTPUTS = "decoder.output_projection.weight"
UNLIKE = ("no-token-positional-embeddings", "cross-self-attention")  # of none of them
SIDES = ("encoder", "decoder")
RATES = ("attention_dropout", "activation_dropout", "encoder_layerdrop", "decoder_layerdrop")


@dataclass(frozen=True)
class Kind:
    """One model of transformers.

    flags: of fairseq-train, which its configuration does not vary
    required: the required value of a key of config.json, and transformers' default where it is
        absent
    defaults: transformers' values of absent keys
    """

    name: str
    flags: tuple[str, ...]
    required: Mapping[str, tuple[Any, Any]]
    defaults: Mapping[str, Any] = field(default_factory=dict)


BEFORE = ("--encoder-normalize-before", "--decoder-normalize-before")
FAIRSEQ_SYMBOLS = {
    **{"bos_token_id": (0, 0), "pad_token_id": (1, 1), "eos_token_id": (2, 2)},
    **{"tie_word_embeddings": (True, True), "normalize_before": (True, True)},
}
KINDS = {
    "marian": Kind(
        "Marian",
        ("--abc-marian",),
        {
            **dict.fromkeys(("normalize_before", "normalize_embedding"), (False, False)),
            "add_final_layer_norm": (False, False),
            **{"static_position_embeddings": (True, True), "tie_word_embeddings": (True, True)},
        },
        {"activation_function": "gelu", "scale_embedding": False},
    ),
    "m2m_100": Kind(
        "M2M-100 and NLLB",
        BEFORE,
        FAIRSEQ_SYMBOLS | {"decoder_start_token_id": (2, 2)},
        {"activation_function": "relu", "scale_embedding": True, "attention_dropout": 0.1},
    ),
    "mbart": Kind(
        "mBART-50",
        (*(*BEFORE, "--layernorm-embedding"), *("--encoder-learned-pos", "--decoder-learned-pos")),
        FAIRSEQ_SYMBOLS
        | dict.fromkeys(("normalize_embedding", "add_final_layer_norm"), (True, True))
        | {"decoder_start_token_id": (2, None), "static_position_embeddings": (False, False)},
        {"activation_function": "gelu", "scale_embedding": False},
    ),
}


def kind_of(config: Mapping[str, Any]) -> Kind:
    """The kind of a config.json. Raises MemAttnError for another model or option."""
    kind = KINDS.get(str(config.get("model_type")))
    if kind is None:
        raise MemAttnError(
            f"config.json: model_type must be one of {', '.join(KINDS)}, as the folder has no "
            f"fairseq.json, but is {config.get('model_type')!r:.60}"
        )
    refuse_unlike(kind.name, config, kind.required, SIZES)
    start, pad = (config.get(f"{name}_token_id") for name in ("decoder_start", "pad"))
    if start != pad and "--abc-marian" in kind.flags:
        raise MemAttnError(
            f"config.json: decoder_start_token_id must be pad_token_id {pad!r:.60}, as in Marian, "
            f"but is {start!r:.60}"
        )
    return kind


def options(config: Mapping[str, Any], with_bias: bool) -> list[str]:
    """The flags of fairseq-train for a model. Raises MemAttnError for an option it cannot have.

    with_bias: whether the outputs have a bias, see `has_bias`
    """
    kind = kind_of(config)
    activation = config.get("activation_function", kind.defaults["activation_function"])
    if activation not in ACTIVATIONS:
        raise MemAttnError(
            f"config.json: activation_function must be one of {', '.join(ACTIVATIONS)}, but is "
            f"{activation!r:.60}"
        )
    flags = ["--arch", "pretrained_transformer", *kind.flags]
    flags += ["--abc-output-bias"] * with_bias
    flags += ["--activation-fn", ACTIVATIONS[activation]]
    if not config.get("scale_embedding", kind.defaults["scale_embedding"]):
        flags.append("--no-scale-embedding")
    for side in SIDES:
        flags += [f"--{side}-embed-dim", str(size(config, "d_model"))]
        for key, name in OF_SIDE.items():
            flags += [f"--{side}-{name}", str(size(config, f"{side}_{key}"))]
    flags += ["--dropout", str(rate(config, "dropout", 0.1))]
    for name in RATES:
        if value := rate(config, name, kind.defaults.get(name, 0.0)):
            flags += [f"--{name.replace('_', '-')}", str(value)]
    length = str(size(config, "max_position_embeddings"))
    flags += ["--max-source-positions", length, "--max-target-positions", length]
    shares = config.get("share_encoder_decoder_embeddings", True)
    return [*flags, f"--share-{'all-embeddings' if shares else 'decoder-input-output-embed'}"]


def config_of(cfg: Any) -> dict[str, Any]:
    """The config.json of a model, without its symbols: the inverse of `options`.

    cfg: fairseq's TransformerConfig of the model

    Raises MemAttnError for another model than `options` makes.
    """
    of_sides = {f"{side}_{x}": y for side in SIDES for x, y in vars(getattr(cfg, side)).items()}
    named = {name.replace("_", "-"): value for name, value in (vars(cfg) | of_sides).items()}
    flags = {flag for kind in KINDS.values() for flag in kind.flags}
    given = {flag for flag in flags if named.get(flag.removeprefix("--"))}
    model_type = next((x for x, kind in KINDS.items() if given == set(kind.flags)), None)
    bias = bool(named.get("abc-output-bias"))
    unlike = model_type is None or bias != (model_type == "marian") and model_type != "mbart"
    if unlike or any(named.get(name) for name in UNLIKE):
        raise MemAttnError(
            "--original is for a model that memattn import-transformers has read, and for one "
            "that was trained from it with the same options"
        )
    activation = str(getattr(named["activation-fn"], "value", named["activation-fn"]))
    theirs = {ours: name for name, ours in reversed(ACTIVATIONS.items())}
    config = {
        **{"model_type": model_type, "d_model": named["decoder-embed-dim"]},
        **{f"{side}_{key}": named[f"{side}-{x}"] for side in SIDES for key, x in OF_SIDE.items()},
        **{name: float(named[name.replace("_", "-")] or 0) for name in ("dropout", *RATES)},
        "activation_function": theirs[activation],
        "scale_embedding": not named["no-scale-embedding"],
        "max_position_embeddings": int(named["max-source-positions"]),
    }
    if model_type == "marian":
        config["share_encoder_decoder_embeddings"] = bool(named["share-all-embeddings"])
    return config


def task_flags(languages: Sequence[str], tokens: Sequence[str | None]) -> list[str]:
    """The flags of the task that translates as the model was trained.

    tokens: that the sentences of either language begin with
    """
    task = ["--source-lang", languages[0], "--target-lang", languages[1], "--task"]
    if not any(tokens):
        return [*task, "translation"]
    task += ["document_translation", "--source-context", "0", "--target-context", "0"]
    for side, token in zip(("source", "target"), tokens, strict=True):
        task += [f"--{side}-token", str(token)]
    return task


def symbols(
    ids: Mapping[str, int], config: Mapping[str, Any], rows: int
) -> tuple[list[str], Tensor]:
    """The symbols of a dictionary after fairseq's four, and the row of each of all symbols.

    ids: of the symbols of a vocabulary; rows: of its embeddings, some of which may have no symbol

    A symbol that a dictionary cannot hold gets the name of an unused one: no text has it.
    Raises MemAttnError for symbols without a row, and without those that fairseq's have.
    """
    names = {number: name for name, number in ids.items()}
    if len(names) < len(ids) or not names.keys() <= set(range(rows)):
        raise MemAttnError(
            f"the {len(ids)} symbols of the vocabulary must have ids of their own, from 0 to "
            f"{rows - 1}, as there are {rows} embeddings"
        )
    eos, pad = (int(config[f"{name}_token_id"]) for name in ("eos", "pad"))
    if names.get(eos) != "</s>" or names.get(pad) != "<pad>" or "<unk>" not in ids:
        raise MemAttnError(
            "the vocabulary must have <unk>, </s> with the id eos_token_id, and <pad> with the id "
            "pad_token_id"
        )
    first = [ids.get("<s>", pad), pad, eos, ids["<unk>"]]
    others = [number for number in range(rows) if number not in first]
    unused = iter(unused_symbols(rows))
    found = [names.get(number, "") for number in others]
    held = [x if x.split() == [x] and x not in SPECIAL else next(unused) for x in found]
    return held, torch.tensor([*first, *others])


def tables(saved: Mapping[str, Tensor], config: Mapping[str, Any]) -> list[Tensor]:
    """The embeddings of the source and of the target, which are one table if they are shared.

    Raises MemAttnError for weights that are not tied as the configuration says.
    """
    sides = [["model.encoder.embed_tokens"], ["model.decoder.embed_tokens", "lm_head"]]
    if config.get("share_encoder_decoder_embeddings", True):
        sides = [["model.shared", *sides[0], *sides[1]]] * 2
    return [
        embeddings(saved, [f"{name}.weight" for name in names], "config.json") for names in sides
    ]


def weights(
    saved: Mapping[str, Tensor], config: Mapping[str, Any], rows: Sequence[Tensor]
) -> dict[str, Tensor]:
    """The weights of a `pretrained_transformer`, in float32.

    saved: by transformers' names; rows: of the embeddings of the source's and the target's symbols

    Raises MemAttnError as `tables` does, and for Marian's positions that are not its sinusoids.
    """
    source, target = (x[y].float() for x, y in zip(tables(saved, config), rows, strict=True))
    if config.get("share_encoder_decoder_embeddings", True):
        target = source
    ours = {f"{side}.version": torch.tensor([3.0]) for side in ("encoder", "decoder")}
    ours["encoder.embed_tokens.weight"] = source
    ours |= dict.fromkeys(("decoder.embed_tokens.weight", OUTPUTS), target)
    for name, weight in saved.items():
        if POSITIONS.fullmatch(name) and config["model_type"] != "mbart":
            _check_sinusoids(name, weight, config)
        elif not (TABLE.fullmatch(name) or name == "final_logits_bias"):
            ours[name.removeprefix("model.")] = weight.float()
    if has_bias(saved, config):
        bias = saved.get("final_logits_bias", torch.zeros(len(rows[1]))).float().view(-1)[rows[1]]
        if rows[1][0] == rows[1][1]:  # there is no <s>
            bias[0] = EXCLUDED
        ours["decoder.output_projection.bias"] = bias
    return ours


def has_bias(saved: Mapping[str, Tensor], config: Mapping[str, Any]) -> bool:
    """Whether the outputs need a bias; that of most published mBARTs is 0."""
    bias = saved.get("final_logits_bias")
    return config["model_type"] == "marian" or (bias is not None and bool(bias.any()))


def sizes(saved: Mapping[str, Tensor]) -> dict[str, int]:
    """The sizes of weights by transformers' names, by the keys of config.json."""
    sizes: dict[str, int] = {}
    for side in SIDES:
        layer = re.compile(rf"model\.{side}\.layers\.(\d+)\.")
        layers = {found[1] for found in map(layer.match, saved) if found}
        fc1 = shape_of(saved, f"model.{side}.layers.0.fc1.weight")
        sizes |= {f"{side}_layers": len(layers), f"{side}_ffn_dim": fc1[0], "d_model": fc1[1]}
    return sizes


def _check_sinusoids(name: str, weight: Tensor, config: Mapping[str, Any]) -> None:
    if config["model_type"] == "marian":
        expected = marian_sinusoids(torch.arange(len(weight)), weight.shape[1])
        if not torch.allclose(weight.float(), expected, atol=1e-3):
            raise MemAttnError(f"the weight {name} has other positions than Marian's sinusoids")
