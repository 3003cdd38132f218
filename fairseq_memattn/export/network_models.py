"""GMAT's models and T5's, whose networks fairseq's models share with those of transformers."""

from dataclasses import asdict
from typing import Any

from torch import Tensor, nn

from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.models.bounded_llama import BoundedLlama
from fairseq_memattn.models.genbert import GMATGenBert
from fairseq_memattn.models.gmat_bert import GMATBert
from fairseq_memattn.models.t5mem import T5Mem
from fairseq_memattn.modules.gmat_encoder import GMATEncoder
from fairseq_memattn.modules.span_head import SpanHead
from fairseq_memattn.tasks.majority_tagging import MajorityTaggingTask
from fairseq_memattn.transformers.decoder import (
    SIZES,
    BoundedDecoderConfig,
    BoundedDecoderForCausalLM,
)
from fairseq_memattn.transformers.gmat_genbert import GenBERTConfig, GenBERTForConditionalGeneration
from fairseq_memattn.transformers.gmat_modeling import (
    GMATConfig,
    GMATForMaskedLM,
    GMATForQuestionAnswering,
    GMATForTokenClassification,
    GMATPreTrainedModel,
)
from fairseq_memattn.transformers.t5mem_config import OF_BOTH, OF_SIDE, OF_SLOTS, T5MemConfig
from fairseq_memattn.transformers.t5mem_seq2seq import T5MemForConditionalGeneration

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


def from_bounded_llama(model: BoundedLlama, task: Any) -> BoundedDecoderForCausalLM:
    """The decoder with its output projection."""
    sizes = model.decoder.sizes
    fields = {theirs: getattr(sizes, ours) for theirs, ours in SIZES.items()}
    config = BoundedDecoderConfig(
        **fields,
        controls=list(sizes.controls),
        rotary_base=sizes.rotary.base,
        **special_symbols(task.target_dictionary),
    )
    weights = {
        f"model.{name}".replace("model.output_projection.", "lm_head."): weight
        for name, weight in model.decoder.state_dict().items()
    }
    return loaded(BoundedDecoderForCausalLM(config), weights)


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
        return with_weights(GMATForQuestionAnswering(GMATConfig(**options)), model, "")
    if isinstance(task, MajorityTaggingTask):
        options["id2label"] = dict(enumerate(task.target_dictionary.symbols))
        return with_weights(GMATForTokenClassification(GMATConfig(**options)), model, "tagger.")
    options["tie_word_embeddings"] = head.weight is encoder.embed_tokens.weight
    return with_weights(GMATForMaskedLM(GMATConfig(**options)), model, "lm_head.")


def from_gmat_genbert(model: GMATGenBert, task: Any) -> GMATPreTrainedModel:
    """The encoder that decodes too, with its head."""
    options = encoder_options(model.encoder, task.source_dictionary)
    options["decoder_layers"] = len(model.decoder.decoder_layers)
    options["decoder_start_token_id"] = task.source_dictionary.eos()
    return with_weights(
        GenBERTForConditionalGeneration(GenBERTConfig(**options)), model, "lm_head."
    )


def encoder_options(encoder: GMATEncoder, dictionary: Any) -> dict[str, Any]:
    """The options of `GMATConfig` for an encoder of fairseq.

    Raises MemAttnError for --quant-noise-pq.
    """
    if encoder.quant_noise is not None:
        raise MemAttnError(
            "--quant-noise-pq must be 0 in a model that is exported, but is "
            f"{encoder.cfg.quant_noise.pq}, which adds a projection of the embeddings"
        )
    mask = dictionary.index("<mask>")
    known = {"mask_token_id": None if mask == dictionary.unk() else mask}
    return asdict(encoder.config) | special_symbols(dictionary) | known


def with_weights(new: GMATPreTrainedModel, model: nn.Module, head: str) -> GMATPreTrainedModel:
    """The new model with the weights of a model of fairseq, without the version of an encoder.

    head: what the names of the weights of its head begin with
    """
    weights = {}
    for name, weight in model.state_dict().items():
        ours = next(start for start in NAMES if name.startswith(start))
        weights[NAMES[ours].format(head=head) + name.removeprefix(ours)] = weight
    del weights["gmat.version"]
    return loaded(new, weights)


def from_t5(model: Any, task: Any) -> T5MemForConditionalGeneration:
    """A T5 or a T5Mem."""
    encoder, decoder = model.encoder, model.decoder
    symbols, sizes = decoder.dictionary, decoder.sizes
    shared = encoder.embed_tokens is decoder.embed_tokens
    has_slots = isinstance(model, T5Mem)
    names = OF_BOTH | (OF_SLOTS if has_slots else {})
    options = {theirs: getattr(sizes, ours) for ours, theirs in names.items()}
    for side, stack in (("encoder", encoder), ("decoder", decoder)):
        for ours, theirs in OF_SIDE.items():
            options[f"{side}_{theirs}"] = getattr(stack.sizes, ours)
    if not has_slots:
        options["slots"] = 0
    elif not sizes.selector:
        options["context_separator_id"] = None
    config = T5MemConfig(
        **options | special_symbols(symbols),
        vocab_size=len(symbols),
        source_vocab_size=None if shared else len(encoder.dictionary),
        share_embeddings=shared,
        max_source_positions=encoder.positions,
        max_target_positions=decoder.positions,
        decoder_start_token_id=symbols.bos(),
    )
    weights = {
        name: weight
        for name, weight in model.state_dict().items()
        if not name.endswith(".scale")  # marks a checkpoint: `T5.mark_scaled`
    }
    weights["lm_head.weight"] = weights["decoder.embed_tokens.weight"]
    return loaded(T5MemForConditionalGeneration(config), weights)


def special_symbols(dictionary: Any) -> dict[str, Any]:
    """The ids of fairseq's special symbols, by the names of a configuration."""
    return {
        "pad_token_id": dictionary.pad(),
        "bos_token_id": dictionary.bos(),
        "eos_token_id": dictionary.eos(),
    }


def loaded(new: Any, weights: dict[str, Tensor]) -> Any:
    """The new model with these weights.

    Raises MemAttnError for weights that one of the models does not have.
    """
    missing, unexpected = new.load_state_dict(weights, strict=False)
    if missing or unexpected:
        what = (
            f"its weight {unexpected[0]} has no counterpart" if unexpected else f"no {missing[0]}"
        )
        raise MemAttnError(f"the model cannot be exported: {what}")
    new.tie_weights()
    return new
