"""The states of the networks' decoders in transformers' own cache."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from torch import Tensor
from transformers import EncoderDecoderCache
from transformers.cache_utils import Cache

from fairseq_memattn.attention.ops.key_values import KeyValues


class Growing(NamedTuple):
    """The keys and values of a layer's own tokens, which transformers' cache holds."""

    cache: Cache
    layer: int

    def append(self, keys: Tensor, values: Tensor) -> KeyValues:
        """Those of all tokens, with those (B, H, T, D) of T more."""
        return KeyValues(*self.cache.update(keys, values, self.layer))


def source_of(cache: EncoderDecoderCache, write: Callable[[], Iterable[Any]]) -> list[KeyValues]:
    """The keys and values of the source of each layer, which the cache keeps.

    write: computes them, as tuples with `keys` and `values`, at the first step
    """
    kept: Any = cache.cross_attention_cache
    if not cache.is_updated.get(0):
        for number, layer in enumerate(write()):
            kept.update(layer.keys, layer.values, number)
            cache.is_updated[number] = True
    return [KeyValues(x.keys, x.values) for x in kept.layers if x.keys is not None]
