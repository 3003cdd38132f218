"""The configuration and the weights of an exported model."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from fairseq.models import FairseqLanguageModel
from fairseq.tasks.translation import TranslationTask
from safetensors import safe_open
from transformers import PreTrainedModel

from fairseq_memattn.tasks.document_translation import DocumentTranslationTask
from fairseq_memattn.transformers.search import DEFAULTS
from fairseq_memattn.transformers.translation_settings import TranslationSettings


def save_weights(converted: PreTrainedModel, folder: Path) -> list[str]:
    """Writes the configuration and the weights, which others may read as they may the first.

    safetensors makes files that only their owner may read. Returns the names of the weights.
    """
    converted.save_pretrained(folder)
    mode = (folder / "config.json").stat().st_mode
    for path in folder.iterdir():
        path.chmod(mode)
    names: list[str] = []
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            names += file.keys()
    return names


def kind_of(model: Any, converted: PreTrainedModel) -> str:
    """ "seq2seq", "causal" for a language model, or "masked".

    model: of fairseq; converted: the same model of transformers
    """
    if converted.config.is_encoder_decoder:
        return "seq2seq"
    return "causal" if isinstance(model, FairseqLanguageModel) else "masked"


def longest_input(model: Any) -> int | None:
    """The maximum number of tokens of the input of a model of fairseq; None if it has none."""
    limits = model.max_positions()
    first = limits[0] if isinstance(limits, tuple) else limits
    return first if isinstance(first, int) and first < 10**6 else None


def set_generation(converted: PreTrainedModel, model: Any, dictionary: Any) -> None:
    """Completes the generation_config.json by fairseq's symbols and fairseq-generate's defaults.

    dictionary: of the target
    """
    if not converted.can_generate():
        return
    config = converted.generation_config
    symbols = {"bos": dictionary.bos(), "eos": dictionary.eos(), "pad": dictionary.pad()}
    for name, number in symbols.items():
        if getattr(config, f"{name}_token_id") is None:
            setattr(config, f"{name}_token_id", number)
    if converted.config.is_encoder_decoder:
        if config.decoder_start_token_id is None:
            config.decoder_start_token_id = dictionary.eos()
        limit = model.max_positions()[1]
        config.update(**DEFAULTS, max_length=None)
        own = {name: DEFAULTS[name] for name in ("max_len_a", "max_len_b")}
        own["max_target_positions"] = limit if isinstance(limit, int) else None
        # transformers reads no unknown names back from generation_config.json.
        converted.config.generation_limits = own


def set_translation(converted: PreTrainedModel, model: Any, task: Any) -> None:
    """Adds `translation` to the configuration, if the task is one that translates.

    model: of fairseq; converted: the same model of transformers
    """
    if type(task) not in (TranslationTask, DocumentTranslationTask):
        return
    cfg = task.cfg
    limits = zip(task.max_positions(), model.max_positions(), strict=True)
    settings = dict(zip(("max_source", "max_target"), map(min, limits), strict=True))
    settings |= {"source_context": 0, "target_context": 0}
    if isinstance(task, DocumentTranslationTask):
        settings |= {
            "source_context": cfg.source_context,
            "target_context": cfg.target_context,
            "separator": cfg.context_separator,
            "as_sequences": task.takes_sequences,
            "source_token": cfg.source_token or None,
            "target_token": cfg.target_token or None,
        }
    converted.config.translation = asdict(TranslationSettings(**settings))
