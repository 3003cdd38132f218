"""fairseq's models for benchmarks, with random weights."""

import argparse
import logging
from argparse import Namespace
from collections.abc import Mapping
from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from torch import Tensor, nn

import fairseq_memattn

fairseq_memattn.register()
logging.disable(logging.INFO)  # fairseq enables the log messages of all libraries

ARCHITECTURES = {
    "abc": "abc_mlp_transformer",
    "softmax": "transformer",
    "rfa": "rfa_transformer",
    "t2r": "t2r_transformer",
}
Slots = Mapping[str, tuple[int, int]]  # slots of cross and causal attention; 0 for softmax


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """The sizes of a model. The defaults are transformer-base, with a small vocabulary."""
    add = parser.add_argument
    add("--layers", type=int, default=6, help="of the encoder and of the decoder (%(default)s)")
    add("--width", type=int, default=512, help="E (%(default)s)")
    add("--ffn", type=int, default=2048, help="width of the feed-forward layers (%(default)s)")
    add("--heads", type=int, default=8, help="H (%(default)s)")
    add("--vocabulary", type=int, default=1000, help="words of the vocabulary (%(default)s)")


def add_slot_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--cross-slots", type=int, default=32, help="--abc-cross-slots (%(default)s)")
    add("--causal-slots", type=int, default=8, help="--abc-causal-slots (%(default)s)")


def make_dictionary(size: int) -> Dictionary:
    """A dictionary of fairseq's special symbols and arbitrary words."""
    dictionary = Dictionary()
    for number in range(size - len(dictionary)):
        dictionary.add_symbol(f"word{number}")
    return dictionary


def build_model(
    architecture: str,
    args: Namespace,
    dictionary: Dictionary,
    longest: int,
    *,
    stream: bool = False,
    **options: Any,
) -> nn.Module:
    """A model with random weights, for up to `longest` tokens on either side.

    stream: as --stream of document translation
    options: further options of fairseq, which replace those of args
    """
    torch.manual_seed(0)
    sizes: dict[str, Any] = {
        "share_all_embeddings": True,
        # Beyond the maximum, fairseq would compute the table of positions at every step.
        "max_source_positions": longest,
        "max_target_positions": longest,
    }
    for side in ("encoder", "decoder"):
        sizes |= {
            f"{side}_layers": args.layers,
            f"{side}_embed_dim": args.width,
            f"{side}_ffn_embed_dim": args.ffn,
            f"{side}_attention_heads": args.heads,
        }
    namespace = Namespace(**(sizes | options))
    ARCH_CONFIG_REGISTRY[architecture](namespace)
    cfg = Namespace(stream=stream)
    task = Namespace(source_dictionary=dictionary, target_dictionary=dictionary, cfg=cfg)
    model = ARCH_MODEL_REGISTRY[architecture].build_model(namespace, task)
    return model.to(args.device)


def build_contenders(
    args: Namespace, dictionary: Dictionary, longest: int, slots: Slots
) -> dict[str, nn.Module]:
    """The models of some of `ARCHITECTURES`. slots: of each, by name"""
    return {
        name: build_model(
            ARCHITECTURES[name],
            args,
            dictionary,
            longest,
            abc_cross_slots=cross,
            abc_causal_slots=causal,
        )
        for name, (cross, causal) in slots.items()
    }


def abc_and_softmax(args: Namespace) -> Slots:
    """The slots of abc and softmax, from the options of `add_slot_options`."""
    return {"abc": (args.cross_slots, args.causal_slots), "softmax": (0, 0)}


def random_words(dictionary: Dictionary, args: Namespace, batch: int, length: int) -> Tensor:
    """Random words (B, length) without special symbols."""
    shape = (batch, length)
    return torch.randint(dictionary.nspecial, len(dictionary), shape, device=args.device)
