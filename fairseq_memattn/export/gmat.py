"""GMAT's models of fairseq as models of transformers."""

from dataclasses import asdict
from typing import Any

from torch import Tensor, nn

from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.export.converters import converts
from fairseq_memattn.models.genbert import GMATGenBert
from fairseq_memattn.models.gmat_bert import GMATBert
from fairseq_memattn.modules.gmat_encoder import GMATEncoder
from fairseq_memattn.modules.span_head import SpanHead
from fairseq_memattn.tasks.majority_tagging import MajorityTaggingTask
from fairseq_memattn.transformers.gmat_genbert import (
    GenBERTConfig,
    GenBERTForConditionalGeneration,
)
from fairseq_memattn.transformers.gmat_modeling import (
    GMATConfig,
    GMATForMaskedLM,
    GMATForQuestionAnswering,
    GMATForTokenClassification,
    GMATPreTrainedModel,
)

# What fairseq's names of weights begin with, and what transformers has in its place. {head} is the
# name of the head. The names within an encoder are the network's on both sides.
NAMES = {
    "encoder.sentence_encoder.": "gmat.",
    "encoder.lm_head.weight": "{head}decoder.weight",
    "encoder.lm_head.bias": "{head}decoder.bias",
    "encoder.lm_head.": "{head}",
    "encoder.": "gmat.",
    "decoder.lm_head.weight": "{head}decoder.weight",
    "decoder.lm_head.bias": "{head}decoder.bias",
    "decoder.lm_head.": "{head}",
    "decoder.": "",
}


@converts(GMATBert)
def from_gmat_bert(model: GMATBert, task: Any) -> GMATPreTrainedModel:
    """The encoder with the head that the model has: for masked words, tags or spans.

    Raises MemAttnError for a head that has no counterpart.
    """
    if model.classification_heads:
        raise MemAttnError(
            f"a gmat_bert with the heads {', '.join(model.classification_heads)} of "
            "--task sentence_prediction cannot be exported"
        )
    encoder, head = model.encoder.sentence_encoder, model.encoder.lm_head
    options = encoder_options(encoder, task.source_dictionary)
    if isinstance(head, SpanHead):
        options["question_memory"] = task.cfg.question_memory
        options["supporting_facts"] = head.facts is not None
        return loaded(GMATForQuestionAnswering(GMATConfig(**options)), model, "")
    if isinstance(task, MajorityTaggingTask):
        options["id2label"] = dict(enumerate(task.target_dictionary.symbols))
        return loaded(GMATForTokenClassification(GMATConfig(**options)), model, "tagger.")
    options["tie_word_embeddings"] = head.weight is encoder.embed_tokens.weight
    return loaded(GMATForMaskedLM(GMATConfig(**options)), model, "lm_head.")


@converts(GMATGenBert)
def from_gmat_genbert(model: GMATGenBert, task: Any) -> GMATPreTrainedModel:
    """The encoder that decodes too, with its head."""
    options = encoder_options(model.encoder, task.source_dictionary)
    options["decoder_layers"] = len(model.decoder.decoder_layers)
    options["decoder_start_token_id"] = task.source_dictionary.eos()
    return loaded(GenBERTForConditionalGeneration(GenBERTConfig(**options)), model, "lm_head.")


def encoder_options(encoder: GMATEncoder, dictionary: Any) -> dict[str, Any]:
    """The options of `GMATConfig` for an encoder of fairseq.

    Raises MemAttnError for --quant-noise-pq.
    """
    if encoder.quant_noise is not None:
        raise MemAttnError(
            "--quant-noise-pq must be 0 in a model that is exported, but is "
            f"{encoder.cfg.quant_noise.pq}, which adds a projection of the embeddings"
        )
    return asdict(encoder.config) | special_symbols(dictionary)


def special_symbols(dictionary: Any) -> dict[str, Any]:
    """The ids of fairseq's special symbols, by the names of a configuration."""
    mask = dictionary.index("<mask>")
    return {
        "bos_token_id": dictionary.bos(),
        "pad_token_id": dictionary.pad(),
        "eos_token_id": dictionary.eos(),
        "mask_token_id": None if mask == dictionary.unk() else mask,
    }


def loaded(new: GMATPreTrainedModel, model: nn.Module, head: str) -> GMATPreTrainedModel:
    """The new model with the weights of a model of fairseq, which are all of its weights.

    head: what the names of the weights of its head begin with
    """
    new.load_state_dict(renamed(model.state_dict(), head))
    return new


def renamed(weights: dict[str, Tensor], head: str) -> dict[str, Tensor]:
    """fairseq's weights by transformers' names, without the version of an encoder."""
    found = {}
    for name, weight in weights.items():
        ours = next(start for start in NAMES if name.startswith(start))
        found[NAMES[ours].format(head=head) + name.removeprefix(ours)] = weight
    found.pop("gmat.version")
    return found
