"""`stop_strings` of `generate`, for a tokenizer with two vocabularies.

transformers' own criterion looks for the strings in the symbols of `get_vocab`, those of the
source, and does not find its probe in texts that the vocabulary cannot spell.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import StoppingCriteria

from fairseq_memattn.transformers.tokenizer import MemAttnTokenizer


class StopStrings(StoppingCriteria):
    """Ends a row whose new tokens hold one of the strings, as the tokenizer decodes them."""

    def __init__(self, strings: Sequence[str], tokenizer: MemAttnTokenizer) -> None:
        self.strings, self.tokenizer = strings, tokenizer
        self.prompt: int | None = None

    def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> Tensor:
        """input_ids: (B beams, T), in the first call the prompt and a token."""
        if self.prompt is None:
            self.prompt = input_ids.shape[1] - 1
        texts = self.tokenizer.batch_decode(input_ids[:, self.prompt :], skip_special_tokens=True)
        found = [any(string in text for string in self.strings) for text in texts]
        return torch.tensor(found, device=input_ids.device)


class StopsAtStrings:
    """A base of models that generate."""

    def _get_stopping_criteria(
        self, generation_config: Any, stopping_criteria: Any, tokenizer: Any = None, **kwargs: Any
    ) -> Any:
        """transformers' hook. generation_config: that of the call alone"""
        strings = generation_config.stop_strings
        own = bool(strings) and isinstance(tokenizer, MemAttnTokenizer)
        if own:
            generation_config.stop_strings = None
        criteria = super()._get_stopping_criteria(  # type: ignore[misc]
            generation_config, stopping_criteria, tokenizer=tokenizer, **kwargs
        )
        if own:
            strings = [strings] if isinstance(strings, str) else strings
            criteria.append(StopStrings(strings, tokenizer))
        return criteria
