"""The encoder and one decoding step as functions of tensors alone, for `torch.export`."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from fairseq_memattn.attention.ops.key_values import KeyValues
from fairseq_memattn.networks.decoder import DecoderState
from fairseq_memattn.transformers.cache import MemoryCache
from fairseq_memattn.transformers.decoder import BoundedDecoderForCausalLM
from fairseq_memattn.transformers.transformer_models import (
    BoundedTransformerForCausalLM,
    BoundedTransformerForConditionalGeneration,
)

Model = (
    BoundedDecoderForCausalLM
    | BoundedTransformerForCausalLM
    | BoundedTransformerForConditionalGeneration
)
STATE, MEMORY = "state", "memory"


class Part(NamedTuple):
    """What one layer keeps between the steps.

    kind: "state" of causal attention, which every step changes, or "memory" of the source
    start: before the first token, of one row and, for a memory, a source of one token
    """

    layer: int
    kind: str
    start: Any

    def fields(self) -> list[str]:
        """The names of the tensors; a mask that softmax attention does not need is left out."""
        return [name for name, x in self.start._asdict().items() if x is not None]

    def names(self) -> list[str]:
        return [f"{self.kind}_{self.layer}_{name}" for name in self.fields()]

    def tensors(self, given: Any) -> list[Tensor]:
        return [getattr(given, name) for name in self.fields()]

    def filled(self, tensors: Iterator[Tensor]) -> Any:
        """The state of the next tensors."""
        return self.start._replace(**{name: next(tensors) for name in self.fields()})

    def axes(self) -> list[dict[int, str]]:
        """The axes of each tensor whose sizes vary: the batch, and those of keys and values."""
        every: dict[int, str] = {0: "batch"}
        if not isinstance(self.start, KeyValues):
            return [every] * len(self.fields())
        length = "source" if self.kind == MEMORY else "past"
        return [every | {3 if name == "visible" else 2: length} for name in self.fields()]


@torch.no_grad()
def parts(model: Model) -> list[Part]:
    """The states and memories of all layers; those of softmax attention have no token yet."""
    if isinstance(model, BoundedDecoderForCausalLM):
        token = torch.zeros(1, 1, dtype=torch.long, device=model.device)
        states = model.model.step(token, None, torch.ones_like(token, dtype=torch.bool))[1].layers
        return [Part(number, STATE, _start(state)) for number, state in enumerate(states)]
    cache, decoder = MemoryCache(model.config), cast(Any, model.decoder)
    token = torch.full((1, 1), model.config.pad_token_id, device=model.device)
    padding = torch.ones_like(token, dtype=torch.bool)
    source = None
    if isinstance(model, BoundedTransformerForConditionalGeneration):
        source = model.encoder(token, torch.ones_like(token)).last_hidden_state
    # Padding leaves the states as they are before the first token.
    decoder(token, padding, source, ~padding, cache)
    found = []
    for number, layer in enumerate(cache.layers):
        found.append(Part(number, STATE, _start(layer.state)))
        if layer.memory is not None:
            found.append(Part(number, MEMORY, layer.memory))
    return found


def _start(state: Any) -> Any:
    """A state that has read nothing but padding, which softmax attention keeps."""
    if not isinstance(state, KeyValues):
        return state
    return KeyValues(state.keys[:, :, :0], state.values[:, :, :0])


class EncoderGraph(nn.Module):
    """The memories of a source, as the layers of the decoder read them."""

    def __init__(self, model: BoundedTransformerForConditionalGeneration) -> None:
        super().__init__()
        self.model = model
        self.parts = [part for part in parts(model) if part.kind == MEMORY]

    def forward(self, tokens: Tensor, mask: Tensor) -> list[Tensor]:
        """tokens, mask: (B, S), of integers; mask is 0 at padding, on either side."""
        decoder, padding = cast(Any, self.model.decoder), mask.eq(0)
        source = self.model.encoder(tokens, mask).last_hidden_state
        with decoder.sharing(decoder.cross_controls):
            memories = [layer.encoder_attn.write(source, padding) for layer in decoder.layers]
        both = zip(self.parts, memories, strict=True)
        return [tensor for part, memory in both for tensor in part.tensors(memory)]


class StepGraph(nn.Module):
    """One decoding step of all rows."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model, self.parts = model, parts(model)

    def forward(
        self, token: Tensor, read: Tensor, states: Sequence[Tensor]
    ) -> tuple[Tensor, Tensor, list[Tensor]]:
        """token: (B, 1); read: (B,), the tokens that each row has read; states: as in `parts`.

        Returns log probabilities (B, V), read + 1 and the next states, without the memories.
        """
        tensors = iter(states)
        if isinstance(self.model, BoundedDecoderForCausalLM):
            before = DecoderState(tuple(part.filled(tensors) for part in self.parts), read)
            x, state = self.model.model.step(token, before)
            both = zip(self.parts, state.layers, strict=True)
            after = [tensor for part, layer in both for tensor in part.tensors(layer)]
            return self._log_probs(x), state.read, after
        cache = MemoryCache(self.model.config)
        cache.read = read
        for part in self.parts:
            setattr(cache.layers[part.layer], part.kind, part.filled(tensors))
        features = self.model.decoder(token, None, cache=cache)
        assert cache.read is not None
        after = [
            tensor
            for part in self.parts
            if part.kind == STATE
            for tensor in part.tensors(cache.layers[part.layer].state)
        ]
        return self._log_probs(features), cache.read, after

    def _log_probs(self, x: Tensor) -> Tensor:
        logits: Tensor = self.model.lm_head(x)
        return logits[:, 0].float().log_softmax(dim=1)
