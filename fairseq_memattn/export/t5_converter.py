"""T5 and T5Mem for transformers."""

from typing import Any

from fairseq_memattn.export.converters import converts
from fairseq_memattn.models.t5 import T5
from fairseq_memattn.models.t5mem import T5Mem
from fairseq_memattn.transformers.t5mem_config import T5MemConfig
from fairseq_memattn.transformers.t5mem_seq2seq import T5MemForConditionalGeneration


@converts(T5)
def to_transformers(model: Any, task: Any) -> T5MemForConditionalGeneration:
    """A `T5MemForConditionalGeneration` with the configuration and the weights of a T5."""
    converted = T5MemForConditionalGeneration(configuration(model))
    weights = {
        name: weight
        for name, weight in model.state_dict().items()
        if not name.endswith(".scale")  # marks a checkpoint: `T5.mark_scaled`
    }
    weights["lm_head.weight"] = weights["decoder.embed_tokens.weight"]
    converted.load_state_dict(weights, strict=True)
    return converted


def configuration(model: Any) -> T5MemConfig:
    """The configuration of a T5 of fairseq."""
    encoder, decoder = model.encoder, model.decoder
    symbols, sizes = decoder.dictionary, decoder.sizes
    shared = encoder.embed_tokens is decoder.embed_tokens
    return T5MemConfig(
        **_of_side("encoder", encoder),
        **_of_side("decoder", decoder),
        vocab_size=len(symbols),
        source_vocab_size=None if shared else len(encoder.dictionary),
        position_buckets=sizes.buckets,
        max_distance=sizes.max_distance,
        dropout=sizes.dropout,
        share_embeddings=shared,
        scale_embedding=sizes.scale_embedding,
        scale_positions=sizes.scale_positions,
        max_source_positions=encoder.positions,
        max_target_positions=decoder.positions,
        **_memory(model),
        bos_token_id=symbols.bos(),
        pad_token_id=symbols.pad(),
        eos_token_id=symbols.eos(),
        decoder_start_token_id=symbols.bos(),
    )


def _memory(model: Any) -> dict[str, Any]:
    """The options of T5Mem."""
    if not isinstance(model, T5Mem):
        return {"slots": 0}
    sizes = model.encoder.sizes
    return {
        "slots": sizes.slots,
        "max_sequences": sizes.sequences,
        "separate_slot_output": sizes.separate_slot_output,
        "separate_slot_ffn": sizes.separate_slot_ffn,
        "mem_attention": sizes.mem_attention,
        "selector": sizes.selector,
        "selector_query": sizes.selector_query,
        "context_separator_id": model.decoder.sizes.separator if sizes.selector else None,
    }


def _of_side(side: str, stack: Any) -> dict[str, Any]:
    sizes = stack.sizes
    return {
        f"{side}_layers": len(stack.layers),
        f"{side}_embed_dim": sizes.embed_dim,
        f"{side}_ffn_dim": sizes.ffn_dim,
        f"{side}_attention_heads": sizes.heads,
        f"{side}_head_dim": sizes.head_dim,
    }
