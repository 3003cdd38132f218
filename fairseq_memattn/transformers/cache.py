"""The state of decoding: a `Cache` of transformers whose size does not grow."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from transformers import PreTrainedConfig
from transformers.cache_utils import Cache, CacheLayerMixin

from fairseq_memattn.attention.controls.registry import state_classes
from fairseq_memattn.attention.controls.softmax import SoftmaxControl
from fairseq_memattn.attention.nn import ABCAttention
from fairseq_memattn.attention.ops.key_values import KeyValues, concatenate_rows

RECORDED = 256  # the last tokens of which a layer that records keeps what it has read


class Recorded(NamedTuple):
    """Tokens that a layer can take back.

    before: the state before them; x: (B, T, E); given: what `ABCAttention.step` reads beside them
    after: the state after an x, from `before`. A function, as copies of a cache share its module
    """

    before: Any
    x: Tensor
    given: dict[str, Any]
    after: Callable[..., Any]


class MemoryLayer(CacheLayerMixin):
    """What one layer keeps: the state of its causal attention, and the memory of the source.

    state, memory: named tuples of tensors with a method `reorder`, None at the start
    record_past: whether `crop` will take tokens back, as transformers' layers have it
    """

    is_sliding = False
    is_croppable = True

    def __init__(self) -> None:
        super().__init__()
        self.state: Any = None
        self.memory: Any = None
        self.length = 0
        self.record_past = False
        self.recorded: list[Recorded] = []

    def step(self, attention: ABCAttention, x: Tensor, **given: Any) -> Tensor:
        """The attention of x (B, T, E) to the tokens before and to itself, and keeps the state.

        given: other arguments of `ABCAttention.step`
        """
        self.length += x.shape[1]
        if not self.record_past or isinstance(attention.control, SoftmaxControl):
            out, self.state = attention.step(x, self.state, **given)
            return out

        def after(x: Tensor, state: Any, given: dict[str, Any]) -> Any:
            return attention.step(x, state, **given)[1]

        outs, early = [], max(0, x.shape[1] - RECORDED)
        if early:  # of a long prompt
            first = _at(given, slice(early))
            out, self.state = attention.step(x[:, :early], self.state, **first)
            outs.append(out)
            x, given = x[:, early:].clone(), _at(given, slice(early, None))
        self.recorded.append(Recorded(self.state, x, _at(given, slice(None)), after))
        out, self.state = attention.step(x, self.state, **given)
        outs.append(out)
        while sum(part.x.shape[1] for part in self.recorded[1:]) >= RECORDED:
            del self.recorded[0]
        return torch.cat(outs, dim=1)

    def activate_past_recording(self) -> None:
        self.record_past = True

    def croppable(self) -> int:
        """How many of the last tokens can be taken back."""
        if isinstance(self.state, KeyValues):
            return self.length
        return sum(part.x.shape[1] for part in self.recorded)

    def crop(self, tokens_to_remove: int) -> Any:
        """As `MemoryCache.crop`. Returns how many of the tokens each row had read, (B,) or all."""
        count, read = abs(tokens_to_remove), cast(Any, 0)
        self.length -= count
        if isinstance(self.state, KeyValues):
            self.state, gone = self.state.split(self.state.keys.shape[2] - count)
            return count if gone.visible is None else gone.visible.sum(dim=(1, 2, 3))
        while count:
            part = self.recorded.pop()
            kept = max(0, part.x.shape[1] - count)
            count -= part.x.shape[1] - kept
            mask = part.given.get("key_padding_mask")
            read += part.x.shape[1] - kept if mask is None else (~mask[:, kept:]).sum(dim=1)
            self.state = part.before
            if kept:
                place = slice(kept)
                self.state = part.after(part.x[:, place], part.before, _at(part.given, place))
        self.recorded.clear()
        return read

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
        self.recorded.clear()

    def reorder_cache(self, beam_idx: Tensor) -> None:
        self.recorded.clear()
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
            layer.recorded.clear()

    @property
    def records(self) -> bool:
        """Whether tokens that follow can be taken back."""
        return any(layer.record_past for layer in self.layers)

    def crop(self, tokens_to_remove: int) -> None:
        """Takes the last tokens back: the states are those before them.

        Only those after `activate_past_recording` and after the last `crop`, at most 256, unless
        all layers have softmax attention. Bounded memories go back to their state before the last
        call of the model, and attention reads those of its tokens again that stay.

        tokens_to_remove: a negative number of tokens, or, as in versions before 5.20 of
            transformers, the number of all tokens that stay

        Raises ValueError for more tokens than are recorded.
        """
        length = self.get_seq_length()
        count = -tokens_to_remove if tokens_to_remove <= 0 else max(0, length - tokens_to_remove)
        most = min(layer.croppable() for layer in self.layers)
        if count > most:
            raise ValueError(
                f"`tokens_to_remove` must be at most the {most} last tokens, which are recorded "
                f"since `activate_past_recording`, but is {count}."
            )
        gone = [layer.crop(-count) for layer in self.layers]
        if self.read is not None:
            self.read = self.read - gone[0]

    @classmethod
    def of(cls, state: Any) -> "MemoryCache":
        """A cache with a `state`, of rows without padding."""
        cache = cls(len(state[1]))
        cache.state = state
        length = max(state[0].tolist(), default=0)
        for layer in cache.layers:
            layer.length = length
        return cache

    @classmethod
    def concatenate(cls, caches: Sequence["MemoryCache"]) -> "MemoryCache":
        """The rows of several caches of one model, whatever each has read, in one cache.

        Raises ValueError for a cache that has read nothing.
        """
        if any(cache.read is None for cache in caches):
            raise ValueError("`caches` must have read a token each, but one is empty.")
        return cls.of(concatenate_rows([cache.state for cache in caches]))

    def rows(self, indices: Tensor) -> "MemoryCache":
        """Those rows (B',) in a cache of their own, without positions that none of them has."""
        assert self.read is not None, "an empty cache has no rows"
        kept = [[_taken(x, indices) for x in of_layer] for of_layer in self.state[1]]
        return self.of((self.read.index_select(0, indices), kept))

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
            layer.reset()
            layer.length = saved["length"]
            layer.state, layer.memory = _restored(state), _restored(memory)


def _saved(state: Any) -> Any:
    return None if state is None else [type(state).__name__, *state]


def _restored(saved: Any) -> Any:
    if saved is None:
        return None
    name, *tensors = saved
    return (state_classes() | {"KeyValues": KeyValues})[name](*tensors)


def _taken(state: Any, indices: Tensor) -> Any:
    state = None if state is None else state.reorder(indices)
    return state.shortened() if isinstance(state, KeyValues) else state


def _at(given: dict[str, Any], place: slice) -> dict[str, Any]:
    """The tensors among the arguments of a step, for some of its tokens."""
    return {name: x[..., place] for name, x in given.items() if isinstance(x, Tensor)}
