"""A folder of transformers' own class, for a translator that was imported from one."""

from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import GenerationConfig

from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.export import translator_tokenizer
from fairseq_memattn.export.network_models import loaded
from fairseq_memattn.export.prepared import Segmented
from fairseq_memattn.export.task_tokenizer import settings_of
from fairseq_memattn.models import hf_translators
from fairseq_memattn.transformers.pieces import SENTENCEPIECE
from fairseq_memattn.transformers.search import DEFAULTS

MODELS = {
    "marian": ("MarianConfig", "MarianMTModel"),
    "m2m_100": ("M2M100Config", "M2M100ForConditionalGeneration"),
    "mbart": ("MBartConfig", "MBartForConditionalGeneration"),
}
OUTPUTS = "decoder.output_projection"
FIRST = 4  # special symbols of fairseq's dictionaries: <s>, <pad>, </s> and <unk>


def order(model_type: str, symbols: int, shared: bool) -> list[int]:
    """Our symbols in the model's order.

    Marian's is: end of sentence, unknown, all pieces, padding. The others have fairseq's.

    shared: whether the sides have one vocabulary; otherwise Marian's padding, which has one id, is
    third
    """
    if model_type != "marian":
        return [*range(symbols)]
    pieces = range(FIRST, symbols)
    return [2, 3, *pieces, 1] if shared else [2, 3, 1, *pieces]


def write(model: Any, task: Any, segmented: Segmented, folder: Path) -> tuple[str, int]:
    """Writes model and tokenizer; returns the name of the model's class and its weights' number.

    model: in evaluation mode, in float32; folder: an empty one

    Raises MemAttnError for a model that is none of these, has bounded memories, or whose data were
    not segmented by SentencePiece alone.
    """
    check(model, segmented)
    options = hf_translators.config_of(model.decoder.cfg)
    sides = [task.source_dictionary, task.target_dictionary]
    shared = options.get("share_encoder_decoder_embeddings", True)
    rows = [torch.tensor(order(options["model_type"], len(one), shared)) for one in sides]
    config, cls = (getattr(transformers, name) for name in MODELS[options.pop("model_type")])
    new = cls(config(**options | symbols_of(rows)))
    made = loaded(new, weights(model, config.model_type, rows))
    set_generation(made, task)
    made.save_pretrained(folder)
    translator_tokenizer.write(made.config, task, segmented, rows, folder)
    return cls.__name__, sum(weight.numel() for weight in made.parameters())


def check(model: Any, segmented: Segmented) -> None:
    pools = [getattr(model.decoder, f"{kind}_controls", None) for kind in ("causal", "cross")]
    if any((*pools, getattr(model.encoder, "controls", None))):
        raise MemAttnError(
            "--original is for a model with softmax attention everywhere, but this has bounded "
            "memories; without --original it is exported in this project's format"
        )
    if segmented.kind != SENTENCEPIECE or segmented.moses:
        raise MemAttnError("--original is for data that SentencePiece models have segmented")


def symbols_of(rows: list[torch.Tensor]) -> dict[str, int]:
    """The sizes of the vocabularies, and the ids of special symbols."""
    ids = [rows[1].tolist().index(symbol) for symbol in (1, 2)]
    found = dict(zip(("pad_token_id", "eos_token_id"), ids, strict=True))
    found |= {"vocab_size": len(rows[0]), "decoder_start_token_id": ids[1]}
    if ids[1] == 0:  # of Marian
        found |= {"decoder_vocab_size": len(rows[1]), "decoder_start_token_id": ids[0]}
    return found


def set_generation(made: Any, task: Any) -> None:
    """The search of the task, with its target language."""
    config = made.config
    names = ("pad_token_id", "eos_token_id", "decoder_start_token_id")
    options: dict[str, Any] = {name: getattr(config, name) for name in names}
    options |= {"forced_eos_token_id": config.eos_token_id, "num_beams": DEFAULTS["num_beams"]}
    options["max_length"] = config.max_position_embeddings
    token = getattr(settings_of(task), "target_token", None)
    if token:
        options["forced_bos_token_id"] = task.target_dictionary.index(token)
    else:
        options["bad_words_ids"] = [[config.pad_token_id]]
    made.generation_config = GenerationConfig(**options)


def weights(model: Any, model_type: str, rows: list[torch.Tensor]) -> dict[str, torch.Tensor]:
    """By transformers' names. rows: of the symbols of either side"""
    ours = dict(model.state_dict())
    source, target = (ours.pop(f"{side}.embed_tokens.weight") for side in ("encoder", "decoder"))
    output, bias = ours.pop(f"{OUTPUTS}.weight"), ours.pop(f"{OUTPUTS}.bias", None)
    found = {
        f"model.{name}": weight for name, weight in ours.items() if not name.endswith(".version")
    }
    found["model.encoder.embed_tokens.weight"] = source[rows[0]]
    found["model.decoder.embed_tokens.weight"] = target[rows[1]]
    found["lm_head.weight"] = output[rows[1]]
    if bias is not None or model_type == "mbart":
        bias = output.new_zeros(len(output)) if bias is None else bias
        found["final_logits_bias"] = bias[rows[1]][None]
    if model.decoder.cfg.share_all_embeddings:
        found["model.shared.weight"] = found["lm_head.weight"]
    for side in ("encoder", "decoder") if model_type == "marian" else ():  # which has a table
        positions = getattr(model, side).embed_positions
        length = model.decoder.cfg.max_source_positions
        found[f"model.{side}.embed_positions.weight"] = positions.vectors(0, length)
    return found
