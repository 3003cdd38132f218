"""fairseq's transformers, with softmax attention or bounded memories, in transformers' format."""

import logging
from dataclasses import asdict
from typing import Any

from fairseq.modules import AdaptiveInput, LearnedPositionalEmbedding, SinusoidalPositionalEmbedding
from torch import Tensor, nn

from fairseq_memattn.attention.controls.registry import control_class
from fairseq_memattn.attention.nn.control_pool import ControlPool
from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.export.network_models import encoder_options, loaded, special_symbols
from fairseq_memattn.export.task_tokenizer import settings_of
from fairseq_memattn.modules.document_memory import DocumentMemoryDecoder
from fairseq_memattn.modules.gmat_encoder import GMATEncoder
from fairseq_memattn.modules.marian import MarianPositionalEmbedding, StartEmbedding
from fairseq_memattn.transformers.transformer_config import (
    BoundedTransformerConfig,
    ControlConfig,
    StackConfig,
)
from fairseq_memattn.transformers.transformer_models import (
    BoundedTransformerForCausalLM,
    BoundedTransformerForConditionalGeneration,
    BoundedTransformerForMaskedLM,
)

logger = logging.getLogger(__name__)

ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_accurate": "gelu_pytorch_tanh",
    "gelu_fast": "gelu_pytorch_tanh",
    "swish": "silu",
    "tanh": "tanh",
    "linear": "linear",
}


def translator(model: Any, task: Any) -> BoundedTransformerForConditionalGeneration:
    """An encoder-decoder, whose encoder may have a global memory."""
    encoder, decoder = model.encoder, model.decoder
    of_encoder: dict[str, Any]
    if isinstance(encoder, GMATEncoder):
        of_encoder = {"gmat": encoder_options(encoder, task.source_dictionary)}
    else:
        of_encoder = {"encoder_stack": _stack(encoder, "encoder")}
    shared = encoder.embed_tokens.weight is decoder.embed_tokens.weight
    config = BoundedTransformerConfig(
        **of_encoder,
        decoder_stack=_stack(decoder, "decoder"),
        share_all_embeddings=shared,
        share_decoder_embeddings=decoder.share_input_output_embed or _ties_words(decoder),
        is_encoder_decoder=True,
        decoder_start_token_id=task.target_dictionary.eos(),
        architectures=["BoundedTransformerForConditionalGeneration"],
        **special_symbols(task.target_dictionary),
    )
    weights = _weights(encoder, "encoder") | _of_decoder(decoder)
    return loaded(BoundedTransformerForConditionalGeneration(config), weights)


def language_model(model: Any, task: Any) -> BoundedTransformerForCausalLM:
    """A decoder without a source."""
    decoder = model.decoder
    config = BoundedTransformerConfig(
        decoder_stack=_stack(decoder, "decoder"),
        share_decoder_embeddings=decoder.share_input_output_embed or _ties_words(decoder),
        architectures=["BoundedTransformerForCausalLM"],
        **special_symbols(task.target_dictionary) | {"bos_token_id": _start(task)},
    )
    return loaded(BoundedTransformerForCausalLM(config), _of_decoder(decoder))


def masked_language_model(model: Any, task: Any) -> BoundedTransformerForMaskedLM:
    """RoBERTa with its head for masked tokens."""
    if model.classification_heads:
        names = ", ".join(model.classification_heads)
        raise MemAttnError(
            f"the classification heads of a roberta ({names}) have no counterpart in the exported "
            "model, which predicts masked tokens"
        )
    encoder, head = model.encoder.sentence_encoder, model.encoder.lm_head
    config = BoundedTransformerConfig(
        encoder_stack=_stack(encoder, "encoder"),
        share_all_embeddings=head.weight is encoder.embed_tokens.weight,
        architectures=["BoundedTransformerForMaskedLM"],
        **special_symbols(task.source_dictionary),
    )
    weights = _weights(encoder, "encoder")
    for name, value in head.state_dict().items():
        own = f"decoder.{name}" if name in ("weight", "bias") else name
        weights[f"lm_head.{own}"] = value
    return loaded(BoundedTransformerForMaskedLM(config), weights)


def _start(task: Any) -> int:
    """The symbol that texts of a language model begin with in its training."""
    dictionary = task.target_dictionary
    with_bos = getattr(settings_of(task), "add_bos_token", False)
    return int(dictionary.bos() if with_bos else dictionary.eos())


def _stack(module: Any, kind: str) -> dict[str, Any]:
    """The fields of a `StackConfig`, from the modules that an encoder or a decoder has.

    Raises MemAttnError for options of fairseq that have no counterpart.
    """
    cfg, is_decoder = module.cfg, kind == "decoder"
    _check_cfg(cfg, module)
    side = cfg.decoder if is_decoder else cfg.encoder
    layer = module.layers[0]
    cross = getattr(layer, "encoder_attn", None)
    if side.layerdrop:
        logger.warning("--%s-layerdrop is not exported: a further training drops no layers", kind)
    positions = module.embed_positions
    longest = cfg.max_target_positions if is_decoder else cfg.max_source_positions
    name = "none"
    if positions is not None:
        if isinstance(positions, MarianPositionalEmbedding):
            name = "marian"
        elif isinstance(positions, SinusoidalPositionalEmbedding):
            name = "sinusoidal"
        elif isinstance(positions, LearnedPositionalEmbedding):
            name, longest = "learned", positions.max_positions
        else:
            raise MemAttnError(
                f"a model with {type(positions).__name__} for its positions cannot be exported"
            )
    adaptive = module.embed_tokens if isinstance(module.embed_tokens, AdaptiveInput) else None
    tokens = module.embed_tokens
    outputs = getattr(module, "output_projection", None)
    stack = StackConfig(
        vocab_size=tokens.cutoff[-1] if adaptive is not None else tokens.num_embeddings,
        pad_token_id=module.padding_idx,
        layers=len(module.layers),
        embed_dim=side.embed_dim,
        ffn_dim=layer.fc1.out_features,
        heads=side.attention_heads,
        input_dim=tokens.embedding_dim,
        output_dim=module.output_embed_dim if is_decoder else side.embed_dim,
        source_dim=0 if cross is None else cfg.encoder.embed_dim,
        activation=_activation(cfg),
        dropout=float(cfg.dropout),
        attention_dropout=float(cfg.attention_dropout),
        activation_dropout=float(cfg.activation_dropout or cfg.relu_dropout or 0.0),
        norm_first=bool(layer.normalize_before),
        norm_embeddings=module.layernorm_embedding is not None,
        norm_output=module.layer_norm is not None,
        scale_embeddings=module.embed_scale != 1.0,
        positions=name,
        max_positions=int(longest),
        start_token_id=tokens.start if isinstance(tokens, StartEmbedding) else None,
        output_bias=getattr(outputs, "bias", None) is not None,
        causal=_control(getattr(module, "causal_controls", None)),
        cross=_control(getattr(module, "cross_controls", None)),
        full=_control(getattr(module, "controls", None)),
        adaptive_input=None if adaptive is None else _adaptive_input(adaptive),
        adaptive_softmax=_adaptive_softmax(module) if is_decoder else None,
    )
    return asdict(stack)


def _check_cfg(cfg: Any, module: Any) -> None:
    refused = {
        "--quant-noise-pq": module.quant_noise is not None,
        "--base-layers": bool(getattr(cfg, "base_layers", 0)),
        "--cross-self-attention": bool(cfg.cross_self_attention),
        "--no-cross-attention": bool(cfg.no_cross_attention),
        "--stream": isinstance(module, DocumentMemoryDecoder),
    }
    for name, is_set in refused.items():
        if is_set:
            raise MemAttnError(f"a model that was trained with {name} cannot be exported")


def _activation(cfg: Any) -> str:
    name = str(getattr(cfg.activation_fn, "value", cfg.activation_fn))
    if name not in ACTIVATIONS:
        raise MemAttnError(f"a model with --activation-fn {name} cannot be exported")
    return ACTIVATIONS[name]


def _control(pool: ControlPool | None) -> ControlConfig | None:
    if pool is None:
        return None
    if pool.spec is None:
        raise MemAttnError("a model that was trained with --abc-causal-layers cannot be exported")
    name, sizes, options = pool.spec.name, pool.spec.sizes, pool.spec.options
    return ControlConfig(
        name=name,
        slots=sizes.slots,
        heads=sizes.heads,
        tied=pool.tied and control_class(name).can_tie,
        max_positions=sizes.max_positions,
        options=asdict(options),
    )


def _adaptive_input(module: Any) -> dict[str, Any]:
    """The cutoffs and widths. The module has no factor, and fairseq's language model lost it."""
    first, *others = (band[0].embedding_dim for band in module.embeddings)
    for factor in (quarters / 4 for quarters in range(4, 4 * first + 1)):
        if others == [int(first // factor**band) for band in range(1, len(others) + 1)]:
            return {"cutoffs": list(module.cutoff), "initial_dim": first, "factor": factor}
    raise MemAttnError("--adaptive-input-factor must be a multiple of 0.25 for an export")


def _adaptive_softmax(decoder: Any) -> dict[str, Any] | None:
    module = decoder.adaptive_softmax
    if module is None:
        return None
    first = decoder.output_embed_dim
    if _ties_words(decoder):
        first = _head_words(module.head).shape[1]
    widths = [first, *(tail[2].weight.shape[1] for tail in module.tail)]
    return {
        "cutoffs": list(module.cutoff),
        "widths": widths,
        "tied_words": _ties_words(decoder),
        "tied_projections": _ties_words(decoder) and _ties_projections(decoder),
    }


def _ties_words(decoder: Any) -> bool:
    module, tokens = decoder.adaptive_softmax, decoder.embed_tokens
    if module is None or not isinstance(tokens, AdaptiveInput):
        return False
    return not isinstance(module.head, nn.Linear)


def _ties_projections(decoder: Any) -> bool:
    tails, bands = decoder.adaptive_softmax.tail, list(decoder.embed_tokens.embeddings)[1:]
    return all(tail[0].weight is band[1].weight for tail, band in zip(tails, bands, strict=True))


def _head_words(head: Any) -> Tensor:
    """The weights (words, width) of the first band's tokens, which the input has too."""
    projection = head.word_proj
    last: Any = projection[1] if isinstance(projection, nn.Sequential) else projection
    return last.weight


def _of_decoder(decoder: Any) -> dict[str, Tensor]:
    weights = _weights(decoder, "decoder")
    if decoder.adaptive_softmax is None:
        outputs = decoder.output_projection.state_dict()
        return weights | {f"lm_head.{name}": weight for name, weight in outputs.items()}
    return weights | {f"lm_head.{k}": v for k, v in _of_adaptive_softmax(decoder).items()}


def _of_adaptive_softmax(decoder: Any) -> dict[str, Tensor]:
    module = decoder.adaptive_softmax
    head = module.head
    if not _ties_words(decoder):
        weights = {"head.weight": head.weight}
    else:
        weights = {"words.weight": _head_words(head), "bands.weight": head.class_proj.weight}
        if isinstance(head.word_proj, nn.Sequential):
            weights["word_projection.weight"] = head.word_proj[0].weight
    for number, tail in enumerate(module.tail):
        weights[f"tails.{number}.projection"] = tail[0].weight
        weights[f"tails.{number}.words.weight"] = tail[2].weight
    return weights


def _weights(stack: Any, side: str) -> dict[str, Tensor]:
    """The parameters of a stack but those of its outputs, under their names in fairseq."""
    skipped = ("output_projection.", "adaptive_softmax.")
    ignored = ("version", "_float_tensor")
    return {
        f"{side}.{name}": value
        for name, value in stack.state_dict().items()
        if not name.startswith(skipped) and name.split(".")[-1] not in ignored
    }
