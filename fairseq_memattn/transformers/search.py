"""`generate` of transformers with the limits of `fairseq-generate`."""

from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList

from fairseq_memattn.transformers.cache import MemoryCache


class OwnLimits(LogitsProcessor):
    """Never pad; nothing but eos for a row that has as many new tokens as it may have.

    limits: (B,), new tokens without eos. eos keeps its own log probability, as in fairseq
    """

    def __init__(self, limits: Tensor, prompt: int, pad: int, eos: int) -> None:
        self.limits, self.prompt, self.pad, self.eos = limits, prompt, pad, eos

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """input_ids: (B beams, T); scores: (B beams, V)."""
        limits = self.limits.repeat_interleave(len(input_ids) // len(self.limits))
        ended = input_ids.shape[1] - self.prompt >= limits
        others = torch.ones(scores.shape[1], dtype=torch.bool, device=scores.device)
        others[self.eos] = False
        scores = scores.masked_fill(ended[:, None] & others, -torch.inf)
        scores[:, self.pad] = -torch.inf
        return scores


class FairseqSearch:
    """What a model adds to `generate`: its cache, and the limits of the rows.

    With `max_len_a` or `max_len_b` in the generation configuration, the limit of a row is
    max_len_a * tokens of its source + max_len_b, unless the call gives `max_new_tokens` or
    `max_length`. `length_penalty`, `num_beams`, `early_stopping=True` and `min_new_tokens=1` are
    fairseq's --lenpen, --beam, its way to stop, and --min-len.
    """

    config: Any
    generation_config: Any

    def generate(self, inputs: Any = None, *args: Any, **kwargs: Any) -> Any:
        """transformers' `generate`; see there."""
        source = kwargs.get("input_ids", inputs)
        if source is not None and kwargs.get("attention_mask") is None:
            # transformers infers no mask for the source of an encoder-decoder.
            kwargs["attention_mask"] = source.ne(self.config.pad_token_id)
        settings = kwargs.get("generation_config") or self.generation_config
        given = {"max_new_tokens", "max_length"} & kwargs.keys()
        limits = None if given else _limits(self, source, settings, kwargs)
        if limits is not None:
            prompt = kwargs.get("decoder_input_ids")
            prompt_length = 1 if prompt is None else prompt.shape[1]
            processor = OwnLimits(
                limits, prompt_length, self.config.pad_token_id, self.config.eos_token_id
            )
            others = kwargs.pop("logits_processor", None) or []
            kwargs["logits_processor"] = LogitsProcessorList([*others, processor])
            kwargs["max_new_tokens"] = int(limits.max()) + 1
        return super().generate(inputs, *args, **kwargs)  # type: ignore[misc]

    def _prepare_cache_for_generation(
        self, generation_config: Any, model_kwargs: dict[str, Any], *args: Any, **kwargs: Any
    ) -> None:
        """transformers' hook: makes the cache, if the caller has none."""
        if model_kwargs.get("past_key_values") is None and generation_config.use_cache is not False:
            model_kwargs["past_key_values"] = MemoryCache(self.config)


def _limits(
    model: Any, source: Tensor | None, settings: GenerationConfig, given: dict[str, Any]
) -> Tensor | None:
    """(B,); None where the generation configuration has no limit of fairseq's."""
    a, b = (given.pop(x, getattr(settings, x, None)) for x in ("max_len_a", "max_len_b"))
    if (a is None and b is None) or source is None or not model.config.is_encoder_decoder:
        return None
    lengths = ((a or 0) * given["attention_mask"].sum(dim=1).double() + (b or 0)).long()
    most = model.config.decoder_stack["max_positions"] - 1
    return lengths.clamp(max=most)
