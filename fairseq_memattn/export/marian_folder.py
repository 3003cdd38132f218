"""A folder of transformers' MarianMTModel, for a model that was imported from one."""

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from transformers import GenerationConfig, MarianConfig, MarianMTModel, MarianTokenizer

from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.export.prepared import Segmented
from fairseq_memattn.export.task_tokenizer import settings_of
from fairseq_memattn.files import write_text
from fairseq_memattn.transformers.pieces import SENTENCEPIECE
from fairseq_memattn.transformers.search import DEFAULTS

RATES = ("dropout", "attention_dropout", "activation_dropout")
FIRST = 4  # special symbols of fairseq's dictionaries: <s>, <pad>, </s> and <unk>


def order(symbols: int, shared: bool) -> list[int]:
    """Our symbols in Marian's order: end of sentence, unknown, all pieces, padding.

    shared: whether the sides have one vocabulary; otherwise padding, which has one id, is third
    """
    pieces = range(FIRST, symbols)
    return [2, 3, *pieces, 1] if shared else [2, 3, 1, *pieces]


def write(model: Any, task: Any, segmented: Segmented, folder: Path) -> int:
    """Writes model and tokenizer; returns the number of weights.

    model: in evaluation mode, in float32; folder: an empty one

    Raises MemAttnError for a model that is not Marian's, has bounded memories, or whose data were
    not segmented by SentencePiece alone.
    """
    check(model, segmented)
    sides = [task.source_dictionary, task.target_dictionary]
    shared = bool(model.decoder.cfg.share_all_embeddings)
    rows = [torch.tensor(order(len(one), shared)) for one in sides]
    made = MarianMTModel(configuration(model, rows))
    made.load_state_dict(weights(model, rows))
    pad = made.config.pad_token_id
    options: dict[str, Any] = {
        **dict.fromkeys(("pad_token_id", "decoder_start_token_id"), pad),
        **dict.fromkeys(("eos_token_id", "forced_eos_token_id"), 0),
        **{"num_beams": DEFAULTS["num_beams"], "bad_words_ids": [[pad]]},
        "max_length": made.config.max_position_embeddings,
    }
    made.generation_config = GenerationConfig(**options)
    made.save_pretrained(folder)
    write_tokenizer(made.config, task, segmented, rows, folder)
    return sum(weight.numel() for weight in made.parameters())


def check(model: Any, segmented: Segmented) -> None:
    decoder, encoder = model.decoder, model.encoder
    pools = [getattr(decoder, f"{kind}_controls", None) for kind in ("causal", "cross")]
    if any((*pools, getattr(encoder, "controls", None))):
        raise MemAttnError(
            "--marian is for a model with softmax attention everywhere, but this has bounded "
            "memories; leave it out"
        )
    cfg = decoder.cfg
    if not (getattr(cfg, "abc_marian", False) and getattr(cfg, "abc_output_bias", False)):
        raise MemAttnError("--marian is for a model with --abc-marian and --abc-output-bias")
    if cfg.encoder.normalize_before or cfg.layernorm_embedding:
        raise MemAttnError("--marian is for a model with a layer norm after each sublayer alone")
    if segmented.kind != SENTENCEPIECE or segmented.moses:
        raise MemAttnError("--marian is for data that SentencePiece models have segmented")


def configuration(model: Any, rows: list[torch.Tensor]) -> MarianConfig:
    cfg = model.decoder.cfg
    activation = str(getattr(cfg.activation_fn, "value", cfg.activation_fn))
    of_sides: dict[str, Any] = {
        f"{name}_{key}": value
        for name, side in (("encoder", cfg.encoder), ("decoder", cfg.decoder))
        for key, value in (
            *(("layers", side.layers), ("ffn_dim", side.ffn_embed_dim)),
            *(("attention_heads", side.attention_heads), ("layerdrop", float(side.layerdrop))),
        )
    }
    options: dict[str, Any] = {
        **{"vocab_size": len(rows[0]), "decoder_vocab_size": len(rows[1])},
        "d_model": cfg.decoder.embed_dim,
        "activation_function": {"gelu_accurate": "gelu_new"}.get(activation, activation),
        **{name: float(getattr(cfg, name) or 0.0) for name in RATES},
        "scale_embedding": not cfg.no_scale_embedding,
        "max_position_embeddings": int(cfg.max_source_positions),
        "share_encoder_decoder_embeddings": bool(cfg.share_all_embeddings),
        **dict.fromkeys(("eos_token_id", "forced_eos_token_id"), 0),
        **dict.fromkeys(("pad_token_id", "decoder_start_token_id"), rows[1].tolist().index(1)),
    }
    return MarianConfig(**of_sides, **options)


def weights(model: Any, rows: list[torch.Tensor]) -> dict[str, torch.Tensor]:
    """By Marian's names. rows: of the symbols of either side"""
    ours = dict(model.state_dict())
    source, target = (ours.pop(f"{side}.embed_tokens.weight") for side in ("encoder", "decoder"))
    outputs = [ours.pop(f"decoder.output_projection.{name}") for name in ("weight", "bias")]
    found = {
        f"model.{name}": weight for name, weight in ours.items() if not name.endswith(".version")
    }
    found["model.encoder.embed_tokens.weight"] = source[rows[0]]
    found["model.decoder.embed_tokens.weight"] = target[rows[1]]
    found |= {"lm_head.weight": outputs[0][rows[1]], "final_logits_bias": outputs[1][rows[1]][None]}
    if model.decoder.cfg.share_all_embeddings:
        found["model.shared.weight"] = found["lm_head.weight"]
    for side in ("encoder", "decoder"):  # of which Marian has a table
        positions = getattr(model, side).embed_positions
        length = model.decoder.cfg.max_source_positions
        found[f"model.{side}.embed_positions.weight"] = positions.vectors(0, length)
    return found


def write_tokenizer(
    config: MarianConfig, task: Any, segmented: Segmented, rows: list[torch.Tensor], folder: Path
) -> None:
    sides = [task.source_dictionary, task.target_dictionary]
    names = ["vocab.json", "target_vocab.json"]
    shared = config.share_encoder_decoder_embeddings
    for name, words, own in list(zip(names, sides, rows, strict=True))[: 1 if shared else 2]:
        ids = {words.symbols[row]: number for number, row in enumerate(own.tolist())}
        write_text(folder / name, json.dumps(ids, ensure_ascii=False))
    pieces = [segmented.pieces["src"], segmented.pieces.get("tgt", segmented.pieces["src"])]
    for name, path in zip(("source.spm", "target.spm"), pieces, strict=True):
        shutil.copyfile(path, folder / name)
    settings = settings_of(task)
    separator = getattr(settings, "context_separator", None)
    options: dict[str, Any] = {
        **{"source_spm": str(folder / "source.spm"), "target_spm": str(folder / "target.spm")},
        **{"vocab": str(folder / "vocab.json"), "separate_vocabs": not shared},
        "target_vocab_file": None if shared else str(folder / "target_vocab.json"),
        **{f"{side}_lang": getattr(settings, f"{side}_lang") for side in ("source", "target")},
        "model_max_length": config.max_position_embeddings,
        "additional_special_tokens": [separator] if separator else [],
    }
    MarianTokenizer(**options).save_pretrained(folder)
