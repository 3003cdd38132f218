"""`generate` of transformers with the limits of `fairseq-generate`."""

import copy
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, EncoderDecoderCache, LogitsProcessor, LogitsProcessorList

from fairseq_memattn.transformers.arguments import VECTORS, refuse_vectors
from fairseq_memattn.transformers.labels import decoder_inputs, visible_inputs, visible_words
from fairseq_memattn.transformers.stop_strings import StopsAtStrings

# fairseq-generate's defaults: --beam, --lenpen, --min-len, --max-len-a, --max-len-b.
DEFAULTS: dict[str, Any] = {
    "num_beams": 5,
    "length_penalty": 1.0,
    "early_stopping": True,
    "min_new_tokens": 1,
    "max_len_a": 0.0,
    "max_len_b": 200,
}

# What may take the place of the tokens of the source.
ENCODED = ("encoder_outputs", "inputs_embeds")


class OwnLimits(LogitsProcessor):
    """Never pad; nothing but eos for a row that has as many new tokens as it may have.

    limits: (B,), new tokens without eos. eos keeps its own log probability, as in fairseq
    eos: one or several, as transformers take it
    """

    def __init__(self, limits: Tensor, pad: int, eos: int | list[int] | Tensor) -> None:
        self.limits, self.pad, self.eos = limits, pad, eos
        self.prompt: int | None = None

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """input_ids: (B beams, T), in the first call the prompt; scores: (B beams, V)."""
        if self.prompt is None:  # transformers may have put the start token before the given one
            self.prompt = input_ids.shape[1]
        limits = self.limits.repeat_interleave(len(input_ids) // len(self.limits))
        ended = input_ids.shape[1] - self.prompt >= limits
        others = torch.ones(scores.shape[1], dtype=torch.bool, device=scores.device)
        others[self.eos] = False
        scores = scores.masked_fill(ended[:, None] & others, -torch.inf)
        scores[:, self.pad] = -torch.inf
        return scores


class FairseqSearch(StopsAtStrings):
    """What encoder-decoders share: the limits of the rows in `generate`, and what labels imply.

    With `max_len_a` or `max_len_b`, among the arguments or in the configuration's
    `generation_limits`, a row ends after max_len_a * tokens of its source + max_len_b new tokens
    and eos, unless the call or a `GenerationConfig` has `max_new_tokens` or `max_length`.
    `max_target_positions` of `generation_limits` limits all rows. As in fairseq-generate, a limit
    is at least `min_new_tokens`. With `length_penalty` (--lenpen), `num_beams` (--beam),
    `early_stopping=True` and `min_new_tokens` (--min-len), tokens and scores
    of the best hypothesis are those of fairseq-generate.
    """

    config: Any
    generation_config: Any
    training: bool
    reads_vectors = False  # whether `forward` takes `inputs_embeds`

    def prepare_decoder_input_ids_from_labels(self, labels: Tensor) -> Tensor:
        """transformers' hook: the labels (B, T), one position later, after the start token."""
        config = self.config
        start = config.decoder_start_token_id
        return decoder_inputs(
            labels, config.eos_token_id if start is None else start, config.pad_token_id
        )

    def decoder_tokens(self, tokens: Tensor | None, labels: Tensor | None) -> Tensor:
        """The inputs (B, T) of the decoder, by default those of the labels."""
        if tokens is not None:
            return tokens
        if labels is None:
            raise ValueError("`decoder_input_ids` or `labels` must be given.")
        return self.prepare_decoder_input_ids_from_labels(labels)

    def visible_tokens(self, tokens: Tensor, labels: Tensor | None, cache: Any) -> Tensor | None:
        """(B, past + T), which of the decoder's inputs are no padding before the first label."""
        pad, start = self.config.pad_token_id, self.config.decoder_start_token_id
        if labels is not None:
            past = 0 if cache is None else cache.get_seq_length()
            return visible_inputs(tokens, labels, pad, past)
        if cache is not None or start is None:
            return None
        return visible_words(tokens, start, pad)

    def cache_of(self, cache: Any, use_cache: bool | None, labels: Tensor | None) -> Any:
        """The given cache, or a new one where one is wanted."""
        if use_cache is None:
            use_cache = self.config.use_cache and labels is None and not self.training
        if cache is None and use_cache:
            return EncoderDecoderCache(DynamicCache(), DynamicCache())
        return cache

    def generate(
        self,
        inputs: Any = None,
        generation_config: Any = None,
        logits_processor: Any = None,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """transformers' `generate`; see there.

        Raises ValueError for a cache of fixed size, for vectors in the place of tokens, for
        `min_new_tokens` above the positions of the model, and for limits without an eos.
        """
        if not self.reads_vectors:
            refuse_vectors(*(kwargs.get(name) for name in VECTORS))
        named = {"generation_config": generation_config, "logits_processor": logits_processor}
        kwargs |= {name: value for name, value in named.items() if value is not None}
        kind = self._option("cache_implementation", kwargs)
        if kind not in (None, "dynamic"):
            raise ValueError(
                "`cache_implementation` must be left out, because the models have caches of their "
                f"own, but is {kind!r}."
            )
        source = kwargs.get("input_ids", inputs)
        limits: dict[str, Any] = getattr(self.config, "generation_limits", None) or {}
        a, b = (kwargs.pop(x, limits.get(x)) for x in ("max_len_a", "max_len_b"))
        if source is not None and kwargs.get("attention_mask") is None:
            # transformers infers no mask for the source of an encoder-decoder.
            kwargs["attention_mask"] = source.ne(self.config.pad_token_id)
        self._mask_inputs(kwargs)
        is_known = source is not None or any(kwargs.get(name) is not None for name in ENCODED)
        own = (self._option(name, kwargs) for name in ("max_new_tokens", "max_length"))
        is_limited = any(limit is not None for limit in own)
        if is_known and not is_limited and (a is not None or b is not None):
            lengths = (a or 0) * self._lengths(source, kwargs).double() + (b or 0)
            self._limit(lengths.long(), limits.get("max_target_positions"), kwargs)
        given = (kwargs.pop(name, None) for name in named)
        return super().generate(inputs, *given, *args, **kwargs)  # type: ignore[misc]

    def _mask_inputs(self, kwargs: dict[str, Any]) -> None:
        """Adds the mask of given `decoder_input_ids`, which a cached step could not tell."""
        inputs = kwargs.get("decoder_input_ids")
        if inputs is None or kwargs.get("decoder_attention_mask") is not None:
            return
        start, pad = self.config.decoder_start_token_id, self.config.pad_token_id
        visible = visible_words(inputs, start, pad)
        if visible is not None and not visible.all():
            kwargs["decoder_attention_mask"] = visible.long()

    def _lengths(self, source: Tensor | None, kwargs: dict[str, Any]) -> Tensor:
        """(B,), the tokens of each source, which may be given as one of `ENCODED`."""
        if source is not None:
            return self.source_lengths(**kwargs)
        outputs = kwargs.get("encoder_outputs")
        mask = getattr(outputs, "attention_mask", None)  # T5Mem's, of all sequences
        if mask is None:
            mask = kwargs.get("attention_mask")
        if mask is None:
            vectors = kwargs["inputs_embeds"] if outputs is None else outputs[0]
            mask = torch.ones(vectors.shape[:2], dtype=torch.long, device=vectors.device)
        return mask.flatten(1).sum(dim=1)

    def source_lengths(self, attention_mask: Tensor, **kwargs: Any) -> Tensor:
        """(B,), the tokens of each source, for `max_len_a`."""
        return attention_mask.sum(dim=1)

    def _option(self, name: str, kwargs: dict[str, Any]) -> Any:
        """An option of the call, of the `GenerationConfig` that it is given, or of the model's."""
        configs = (kwargs.get("generation_config"), self.generation_config)
        values = (kwargs.get(name), *(getattr(config, name, None) for config in configs))
        return next((value for value in values if value is not None), None)

    def _limit(self, limits: Tensor, positions: int | None, kwargs: dict[str, Any]) -> None:
        """Adds the limits (B,) to the arguments of `generate`.

        As in fairseq-generate, they are at least the shortest length, and at most the positions.
        """
        eos = self._option("eos_token_id", kwargs)
        if eos is None:
            eos = self.config.eos_token_id
        ids = torch.empty(0) if eos is None else torch.as_tensor(eos)
        if not ids.numel() or (ids < 0).any():
            raise ValueError(
                "`eos_token_id` must be ids from 0 for a search that ends by `max_len_a` and "
                f"`max_len_b`, but is {eos}; set `max_new_tokens` to search without an end."
            )
        prompt = kwargs.get("decoder_input_ids")
        started = 1 if prompt is None else prompt.shape[1]
        least = (self._option("min_length", kwargs) or 0) - started
        least = max(0, least, self._option("min_new_tokens", kwargs) or 0)
        limits = limits.clamp(min=least)
        if positions is not None:
            if least >= positions:
                raise ValueError(
                    f"`min_new_tokens` must be below the {positions} positions of the model "
                    f"(`max_target_positions`), but is {least}."
                )
            limits = limits.clamp(max=positions - 1)
        others = kwargs.pop("logits_processor", None) or []
        processor = OwnLimits(limits, self.config.pad_token_id, eos)
        kwargs["logits_processor"] = LogitsProcessorList([*others, processor])
        kwargs["max_new_tokens"] = int(limits.max()) + 1
        if kwargs.get("generation_config") is not None:
            # transformers deprecates options beside it.
            config = copy.deepcopy(kwargs["generation_config"])
            config.max_new_tokens = kwargs.pop("max_new_tokens")
            kwargs["generation_config"] = config
