"""The state of decoding: a `Cache` of transformers whose size does not grow."""

from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedConfig
from transformers.cache_utils import Cache, CacheLayerMixin

from fairseq_memattn.attention.controls.registry import state_classes
from fairseq_memattn.attention.ops.key_values import KeyValues


class MemoryLayer(CacheLayerMixin):
    """What one layer keeps: the state of its causal attention, and the memory of the source.

    state, memory: named tuples of tensors with a method `reorder`, None at the start
    """

    is_sliding = False

    def __init__(self) -> None:
        super().__init__()
        self.state: Any = None
        self.memory: Any = None
        self.length = 0

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("a layer of a MemoryCache is written by its attention alone")

    lazy_initialization = update

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.length + query_length, 0

    def get_seq_length(self) -> int:
        return self.length

    def get_max_length(self) -> int:
        return -1

    def reset(self) -> None:
        self.state, self.memory, self.length = None, None, 0

    def reorder_cache(self, beam_idx: Tensor) -> None:
        self.state, self.memory = (
            None if x is None else x.reorder(beam_idx) for x in (self.state, self.memory)
        )


class MemoryCache(Cache):
    """The states of all layers of a decoder, and how many tokens each row has read.

    config: of the model, or the number of its decoder's layers

    With bounded memories its size is constant; layers of softmax attention keep all keys and
    values.

    `torch.save(cache.state_dict(), file)` saves it, without any code in the file, and
    `load_state_dict(torch.load(file))` takes it back.
    """

    layers: Any

    def __init__(self, config: PreTrainedConfig | int) -> None:
        count = config if isinstance(config, int) else config.num_hidden_layers
        made: list[Any] = [MemoryLayer() for _ in range(count)]
        super().__init__(layers=made)
        self.read: Tensor | None = None
        self.graph: Any = None  # a `StepGraph` of the decoder that the cache belongs to

    @property
    def state(self) -> Any:
        """All tensors: what each row has read, and what each layer keeps."""
        return self.read, [(layer.state, layer.memory) for layer in self.layers]

    @state.setter
    def state(self, state: Any) -> None:
        self.read, of_layers = state
        for layer, kept in zip(self.layers, of_layers, strict=True):
            layer.state, layer.memory = kept

    def started(self, batch: int, device: torch.device) -> Tensor:
        """(B,): the tokens that each row has read."""
        if self.read is None:
            self.read = torch.zeros(batch, dtype=torch.long, device=device)
        return self.read

    def nbytes(self) -> int:
        """The bytes of all tensors."""
        states = (state for layer in self.layers for state in (layer.state, layer.memory))
        return sum(x.nbytes for state in states for x in state or () if x is not None)

    def reorder_cache(self, beam_idx: Tensor) -> None:
        for layer in self.layers:
            layer.reorder_cache(beam_idx)
        if self.read is not None:
            self.read = self.read.index_select(0, beam_idx)

    def batch_repeat_interleave(self, repeats: int) -> None:
        assert self.read is not None, "an empty cache has no rows"
        rows = torch.arange(len(self.read), device=self.read.device)
        self.reorder_cache(rows.repeat_interleave(repeats))

    def batch_select_indices(self, indices: Tensor) -> None:
        self.reorder_cache(indices)

    def reset(self) -> None:
        super().reset()
        self.read = self.graph = None

    def state_dict(self) -> dict[str, Any]:
        """What `load_state_dict` takes: tensors, an int, and the names of the states' classes."""
        return {
            "length": self.get_seq_length(),
            "read": self.read,
            "layers": [[_saved(layer.state), _saved(layer.memory)] for layer in self.layers],
        }

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Takes the states of a cache of the same model.

        Raises ValueError for another number of layers.
        """
        if len(saved["layers"]) != len(self.layers):
            raise ValueError(
                f"`saved` must have the {len(self.layers)} layers of the cache, but has "
                f"{len(saved['layers'])}."
            )
        self.read = saved["read"]
        for layer, (state, memory) in zip(self.layers, saved["layers"], strict=True):
            layer.length = saved["length"]
            layer.state, layer.memory = _restored(state), _restored(memory)


def _saved(state: Any) -> Any:
    return None if state is None else [type(state).__name__, *state]


def _restored(saved: Any) -> Any:
    if saved is None:
        return None
    name, *tensors = saved
    return (state_classes() | {"KeyValues": KeyValues})[name](*tensors)
