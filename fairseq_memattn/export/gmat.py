"""GMAT's models of fairseq as models of transformers."""

from typing import Any

from fairseq.models.roberta.model import RobertaLMHead
from torch import Tensor

from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.export.converters import converts
from fairseq_memattn.models.genbert import GMATGenBert
from fairseq_memattn.models.gmat_bert import GMATBert
from fairseq_memattn.modules.gmat_encoder import GMATEncoder
from fairseq_memattn.modules.gmat_positions import MAX_POSITIONS
from fairseq_memattn.modules.span_head import SpanHead
from fairseq_memattn.tasks.majority_tagging import MajorityTaggingTask
from fairseq_memattn.transformers.gmat_configuration import GMATConfig
from fairseq_memattn.transformers.gmat_genbert import (
    GenBERTConfig,
    GenBERTForConditionalGeneration,
)
from fairseq_memattn.transformers.gmat_modeling import (
    GMATForMaskedLM,
    GMATForQuestionAnswering,
    GMATForTokenClassification,
    GMATPreTrainedModel,
)

# fairseq's --activation-fn, by transformers' names.
ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_fast": "gelu_accurate",
    "gelu_accurate": "gelu_accurate",
    "tanh": "tanh",
    "linear": "linear",
}
PROJECTIONS = {"none": "", "qkv": "qkv", "qkvo": "qkvo"}


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
    weights = prefixed("gmat", encoder_weights(encoder))
    if isinstance(head, SpanHead):
        return _question_answering(head, options, weights, task)
    if isinstance(task, MajorityTaggingTask):
        options["id2label"] = dict(enumerate(task.target_dictionary.symbols))
        tagger = GMATForTokenClassification(GMATConfig(**options))
        return loaded(tagger, weights | prefixed("tagger", head_weights(head)))
    options["tie_word_embeddings"] = head.weight is encoder.embed_tokens.weight
    masked = GMATForMaskedLM(GMATConfig(**options))
    return loaded(masked, weights | prefixed("lm_head", head_weights(head)))


@converts(GMATGenBert)
def from_gmat_genbert(model: GMATGenBert, task: Any) -> GMATPreTrainedModel:
    """The encoder that decodes too, with its head."""
    encoder, decoder, dictionary = model.encoder, model.decoder, task.source_dictionary
    options = encoder_options(encoder, dictionary)
    options["decoder_layers"] = len(decoder.layers)
    options["decoder_start_token_id"] = dictionary.eos()
    weights = prefixed("gmat", encoder_weights(encoder))
    weights |= prefixed("lm_head", head_weights(decoder.lm_head))
    weights["segment"] = decoder.segment
    return loaded(GenBERTForConditionalGeneration(GenBERTConfig(**options)), weights)


def _question_answering(
    head: SpanHead, options: dict[str, Any], weights: dict[str, Tensor], task: Any
) -> GMATPreTrainedModel:
    options["question_memory"] = task.cfg.question_memory
    options["supporting_facts"] = head.facts is not None
    return loaded(GMATForQuestionAnswering(GMATConfig(**options)), weights | head.state_dict())


def encoder_options(encoder: GMATEncoder, dictionary: Any) -> dict[str, Any]:
    """The options of `GMATConfig` for an encoder of fairseq.

    Raises MemAttnError for options of fairseq that `GMATConfig` does not have.
    """
    layer: Any = encoder.layers[0]
    cfg = encoder.cfg
    if encoder.quant_noise is not None:
        raise MemAttnError(
            f"--quant-noise-pq must be 0 in a model that is exported, but is {cfg.quant_noise.pq}, "
            "which adds a projection of the embeddings"
        )
    activation = str(cfg.activation_fn)
    if activation not in ACTIVATIONS:
        raise MemAttnError(
            f"--activation-fn must be one of {', '.join(ACTIVATIONS)} in a model that is "
            f"exported, but is {activation}"
        )
    positions = "blocks" if cfg.encoder.learned_pos else "sinusoidal"
    return {
        "vocab_size": encoder.embed_tokens.num_embeddings,
        "hidden_size": encoder.embed_tokens.embedding_dim,
        "num_hidden_layers": len(encoder.layers),
        "num_attention_heads": layer.self_attn.num_heads,
        "intermediate_size": layer.fc1.out_features,
        "hidden_act": ACTIVATIONS[activation],
        "hidden_dropout_prob": cfg.dropout,
        "attention_probs_dropout_prob": cfg.attention_dropout,
        "activation_dropout": layer.activation_dropout_module.p,
        "layerdrop": cfg.encoder.layerdrop or 0.0,
        "layer_norm_eps": layer.final_layer_norm.eps,
        "normalize_before": encoder.layer_norm is not None,
        "embedding_layer_norm": encoder.layernorm_embedding is not None,
        "scale_embedding": not cfg.no_scale_embedding,
        "position_embedding_type": "none" if encoder.embed_positions is None else positions,
        "position_block": cfg.gmat_position_block,
        "max_position_embeddings": MAX_POSITIONS,
        "sparsity": str(cfg.gmat_sparsity),
        "chunk_size": cfg.gmat_chunk,
        "window": cfg.gmat_window,
        "lsh_rounds": cfg.gmat_lsh_rounds,
        "lsh_buckets": cfg.gmat_lsh_buckets,
        "memory_slots": encoder.slots,
        "memory_positions": cfg.gmat_memory_positions,
        "memory_projections": PROJECTIONS[str(cfg.gmat_memory_projections)],
        "compress_after": cfg.gmat_compress_after,
        "memory_layers": cfg.gmat_memory_layers,
        **special_symbols(dictionary),
    }


def special_symbols(dictionary: Any) -> dict[str, Any]:
    """The ids of fairseq's special symbols, by the names of a configuration."""
    mask = dictionary.index("<mask>")
    return {
        "bos_token_id": dictionary.bos(),
        "pad_token_id": dictionary.pad(),
        "eos_token_id": dictionary.eos(),
        "mask_token_id": None if mask == dictionary.unk() else mask,
    }


def encoder_weights(encoder: GMATEncoder) -> dict[str, Tensor]:
    """The weights of an encoder of fairseq, by the names of `GMATModel`."""
    return {name: weight for name, weight in encoder.state_dict().items() if name != "version"}


def head_weights(head: RobertaLMHead) -> dict[str, Tensor]:
    """The weights of RoBERTa's head for masked words, by the names of `GMATHead`."""
    weights = head.state_dict()
    own = {f"decoder.{name}": weights.pop(name) for name in ("weight", "bias")}
    return weights | own


def prefixed(prefix: str, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """The weights of a module, by their names in a model that has the module."""
    return {f"{prefix}.{name}": weight for name, weight in weights.items()}


def loaded(model: GMATPreTrainedModel, weights: dict[str, Tensor]) -> GMATPreTrainedModel:
    """The model with these weights, which are all of its weights."""
    model.load_state_dict(weights)
    return model
