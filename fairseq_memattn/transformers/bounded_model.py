"""What models with bounded memories share: their first weights, and their cache in `generate`."""

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

import torch
from torch import Tensor, nn
from transformers import GenerationMixin, PreTrainedModel

from fairseq_memattn.attention.controls.softmax import SoftmaxControl
from fairseq_memattn.transformers.arguments import CACHE
from fairseq_memattn.transformers.cache import MemoryCache


class BoundedModel(PreTrainedModel):
    """A base of models whose controls initialise their own weights when they are made."""

    config: Any
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    accepts_loss_kwargs = True  # for Trainer, which passes `num_items_in_batch`

    def _init_weights(self, module: nn.Module) -> None:
        """transformers' hook. Subclasses initialise the other modules."""

    @torch.no_grad()
    def _initialize_missing_keys(self, *args: Any, **kwargs: Any) -> None:
        """transformers' hook: weights that a checkpoint lacks are those of a new model."""
        super()._initialize_missing_keys(*args, **kwargs)
        lacking = {
            name: tensor
            for name, tensor in self.state_dict(keep_vars=True).items()
            if not getattr(tensor, "_is_hf_initialized", False)
            and name not in self.all_tied_weights_keys
        }
        if lacking:
            new = type(self)(self.config).state_dict()
            for name in lacking.keys() & new.keys():
                lacking[name].copy_(new[name])


class OwnCache:
    """What a decoder with bounded memories adds to `generate`: its cache."""

    config: Any
    modules: Callable[[], Iterator[nn.Module]]

    def _prepare_cache_for_generation(
        self, generation_config: Any, model_kwargs: dict[str, Any], *args: Any, **kwargs: Any
    ) -> None:
        """transformers' hook: makes the cache, if the caller has none.

        Raises ValueError for caches of another kind, and for a static one of softmax attention.
        """
        kind = generation_config.cache_implementation or "dynamic"
        grows = any(isinstance(module, SoftmaxControl) for module in self.modules())
        if not kind.startswith("dynamic") and (grows or kind != "static"):
            raise ValueError(
                "`cache_implementation` must be left out, because the models have caches of their "
                f"own{', and softmax attention one that grows' * grows}, but is {kind!r}."
            )
        if model_kwargs.get(CACHE) is None and generation_config.use_cache is not False:
            model_kwargs[CACHE] = MemoryCache(self.config)
            if generation_config.is_assistant:
                model_kwargs[CACHE].activate_past_recording()

    @wraps(GenerationMixin.prepare_inputs_for_generation)  # whose arguments `generate` looks for
    def prepare_inputs_for_generation(self, input_ids: Tensor, *args: Any, **kwargs: Any) -> Any:
        """transformers' hook. A search with candidates reads what the cache has not read."""
        cache, name = kwargs.get(CACHE), "next_sequence_length"
        is_first = kwargs.get("is_first_iteration") and kwargs.get(name) is None
        if is_first and cache is not None and cache.records:
            kwargs[name] = input_ids.shape[1] - cache.get_seq_length()
        return super().prepare_inputs_for_generation(input_ids, *args, **kwargs)  # type: ignore[misc]

    def _assisted_decoding(self, *args: Any, **kwargs: Any) -> Any:
        """transformers' search with candidates, which lets a cache record."""
        try:
            return super()._assisted_decoding(*args, **kwargs)  # type: ignore[misc]
        finally:
            for layer in getattr(kwargs.get(CACHE), "layers", ()):  # none without `use_cache`
                layer.record_past = False
