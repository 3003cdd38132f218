"""A step of incremental decoding that can be repeated, for timing."""

import statistics
from argparse import Namespace
from collections.abc import Iterable
from typing import Any

import torch
from common import seconds
from fairseq.data import Dictionary
from fairseq.modules import MultiheadAttention
from models import random_words
from torch import Tensor, nn

State = dict[str, Any]
Encoded = dict[str, list[Tensor]]


def for_inference(model: nn.Module) -> nn.Module:
    """Prepares a model for decoding as fairseq's commands do."""
    model.eval()
    model.prepare_for_inference_(Namespace(generation=Namespace(print_alignment=False)))
    return model


def start_words(dictionary: Dictionary, args: Namespace, length: int) -> Tensor:
    """(B, length + 1): the start symbol and random words, for --batch sentences."""
    words = random_words(dictionary, args, args.batch, length + 1)
    words[:, 0] = dictionary.eos()
    return words


def random_states(args: Namespace, length: int) -> Encoded:
    """Random encoder output for a source of this length.

    The encoder is not part of a decoding step, and takes minutes for long sources.
    """
    states = torch.randn(length, args.batch, args.width, device=args.device)
    return {"encoder_out": [states], "encoder_padding_mask": []}


def next_words(model: nn.Module, words: Tensor, encoded: Encoded, state: State) -> Tensor:
    """One step: the most likely word (B,) after `words` (B, t), without special symbols."""
    specials = model.decoder.dictionary.nspecial
    logits, _ = model.decoder(words, encoder_out=encoded, incremental_state=state)
    return logits[:, -1, specials:].argmax(dim=-1) + specials


def fill_caches(model: nn.Module, words: Tensor, state: State) -> None:
    """Fills the caches with random keys and values for all of `words` (B, t) but the last.

    They do not change the time of a step. Bounded memories are not changed.
    """
    for layer in model.decoder.layers:
        attention = layer.self_attn
        if not isinstance(attention, MultiheadAttention):
            continue
        shape = (len(words), attention.num_heads, words.shape[1] - 1, attention.head_dim)
        cache = {
            name: torch.rand(shape, device=words.device) for name in ("prev_key", "prev_value")
        }
        attention._set_input_buffer(state, cache | {"prev_key_padding_mask": None})


def copy_state(state: State) -> State:
    """A shallow copy, which suffices because steps never change tensors of a state in place."""
    return {key: dict(v) if isinstance(v, dict) else v for key, v in state.items()}


def storages(state: Any) -> dict[int, int]:
    """The bytes of each storage by its address, for the tensors in nested dicts and tuples."""
    if isinstance(state, Tensor):
        storage = state.untyped_storage()
        return {storage.data_ptr(): storage.nbytes()}
    children = state.values() if isinstance(state, dict) else state
    if not isinstance(children, Iterable):
        return {}
    return {address: size for child in children for address, size in storages(child).items()}


def state_bytes(state: State) -> int:
    """The memory of a state in bytes; each storage counts once and in full."""
    return sum(storages(state).values())


class Step:
    """The step after `words` (B, t), which is repeated from the same state."""

    def __init__(self, model: nn.Module, encoded: Encoded, words: Tensor, state: State) -> None:
        self.model, self.encoded, self.words, self.state = model, encoded, words, state
        self.taken: list[float] = []

    def run(self, args: Namespace, times: int) -> None:
        for _ in range(times):
            state = copy_state(self.state)
            work = (self.model, self.words, self.encoded, state)
            self.taken.append(seconds(args, lambda work=work: next_words(*work)))

    def median(self) -> float:
        return statistics.median(self.taken)
