"""States after prompts, so that a prompt which begins like an earlier one is not read again."""

import hashlib
from collections import OrderedDict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fairseq_memattn.transformers.arguments import CACHE
from fairseq_memattn.transformers.cache import MemoryCache

Key = tuple[int, str]


class PrefixStore:
    """The states of a model after prompts; the least recently used ones go.

    model: a causal model with a `MemoryCache`, such as `BoundedDecoderForCausalLM`. Its weights do
        not change while the store is used
    max_bytes: of all states; `nbytes` are those that they have

    A bounded memory has the same size after any prompt; layers of softmax attention keep all keys.

        store = PrefixStore(model)
        ids = tokenizer(text, return_tensors="pt").input_ids
        model.generate(ids, past_key_values=store.prefill(ids))
    """

    def __init__(self, model: Any, max_bytes: int = 2**30) -> None:
        self.model, self.max_bytes = model, max_bytes
        self.nbytes = 0
        # By the number of tokens and their digest; the least recently used one is the first.
        self._caches: OrderedDict[Key, MemoryCache] = OrderedDict()

    def __len__(self) -> int:
        return len(self._caches)

    def keep(self, input_ids: Tensor, cache: MemoryCache) -> None:
        """Copies the state after tokens (1, T), unless it is larger than the store.

        Raises ValueError for a cache that has not read exactly these tokens in one row.
        """
        length = input_ids.shape[1]
        if len(input_ids) != 1 or cache.read is None or cache.read.tolist() != [length]:
            read = [] if cache.read is None else cache.read.tolist()
            raise ValueError(
                f"`cache` must have read the {length} tokens of `input_ids` in one row, but its "
                f"rows have read {read}."
            )
        self._put((length, hashlib.sha256(bytes_of(input_ids)).hexdigest()), copied(cache))

    def find(self, input_ids: Tensor) -> MemoryCache:
        """A cache after the longest known prefix of tokens (1, T), shorter than all of them.

        `cache.get_seq_length()` is its length; a cache without tokens where nothing is known.
        """
        start, digest, found = 0, hashlib.sha256(), None
        for length in sorted({length for length, _ in self._caches}):
            if length >= input_ids.shape[1]:
                break
            digest.update(bytes_of(input_ids[:, start:length]))
            start, key = length, (length, digest.hexdigest())
            found = key if key in self._caches else found
        if found is None:
            return MemoryCache(self.model.config)
        self._caches.move_to_end(found)
        return MemoryCache.of(self._caches[found].state)

    @torch.no_grad()
    def prefill(self, input_ids: Tensor, piece: int = 256) -> MemoryCache:
        """A cache after tokens (1, T) but the last 1 to `piece` ones, which `generate` reads.

        The model reads pieces that end at multiples of `piece`; the states there are kept. What is
        generated afterwards is then bit for bit what it is from an empty store, as long as `keep`
        was not used.
        """
        cache = self.find(input_ids)
        start = cache.get_seq_length()
        given: dict[str, Any] = {CACHE: cache}
        if self.model._supports_logits_to_keep():
            given["logits_to_keep"] = 1
        for end in range(piece * (start // piece + 1), input_ids.shape[1], piece):
            self.model(input_ids[:, start:end], **given)
            # The layout in memory, on which roundings depend, is that of a kept state.
            cache, start = copied(cache), end
            given[CACHE] = cache
            self.keep(input_ids[:, :end], cache)
        return cache

    def save(self, file: Path | str) -> None:
        """Writes all states."""
        states = [(*key, cache.state_dict()) for key, cache in self._caches.items()]
        torch.save({"weights": self._weights(), "states": states}, file)

    def load(self, file: Path | str) -> None:
        """Adds the states of a file, which contains no code.

        Raises ValueError for states of other weights.
        """
        saved = torch.load(file, map_location=self.model.device, weights_only=True)
        if saved["weights"] != self._weights():
            raise ValueError(f"the states in {file} are those of a model with other weights.")
        for length, digest, state in saved["states"]:
            cache = MemoryCache(self.model.config)
            cache.load_state_dict(state)
            self._put((length, digest), cache)

    def _put(self, key: Key, cache: MemoryCache) -> None:
        if cache.nbytes() > self.max_bytes:
            return
        if key in self._caches:
            self.nbytes -= self._caches.pop(key).nbytes()
        self._caches[key] = cache
        self.nbytes += cache.nbytes()
        while self.nbytes > self.max_bytes:
            self.nbytes -= self._caches.popitem(last=False)[1].nbytes()

    def _weights(self) -> str:
        """Tells models apart, by the first numbers of each weight."""
        weights = (weight.detach() for weight in self.model.parameters())
        firsts = [weight.flatten()[:8].double().cpu() for weight in weights]
        return hashlib.sha256(torch.cat(firsts).numpy().tobytes()).hexdigest()


def copied(cache: MemoryCache) -> MemoryCache:
    assert cache.read is not None
    return cache.rows(torch.zeros_like(cache.read))


def bytes_of(tokens: Tensor) -> bytes:
    return tokens.cpu().long().numpy().tobytes()
