"""What the corpora of generated examples share."""

import argparse
import re
from collections import Counter
from collections.abc import Callable, Iterator
from random import Random
from typing import Protocol, TypeVar

from tqdm import tqdm

from fairseq_memattn.data_prep.pipeline.arguments import add_numbers, add_options, positive

SPLITS = ("test", "valid", "train")  # in this order the test set does not depend on train's size
PIECE = re.compile(r"\d|[^\W\d]+|[^\w\s]")


class HasPassage(Protocol):
    """An example."""

    @property
    def passage(self) -> str:
        """The text that no other example has."""
        ...


T = TypeVar("T", bound=HasPassage)


def pieces(text: str) -> str:
    """Words in lower case, punctuation marks and single digits, with spaces between them."""
    return " ".join(PIECE.findall(text.lower()))


def add_size_arguments(parser: argparse.ArgumentParser, train: int, held_out: int) -> None:
    """Add --train, --valid and --test, the numbers of examples, and --seed."""
    numbers = {
        "--train": (positive, train, "training examples"),
        "--valid": (positive, held_out, "validation examples"),
        "--test": (positive, held_out, "test examples"),
    }
    add_numbers(parser, numbers)
    add_options(parser, "--seed")


def split_sizes(args: argparse.Namespace) -> dict[str, int]:
    """The number of examples of each split."""
    return {split: getattr(args, split) for split in SPLITS}


def distinct(
    split: str,
    size: int,
    seed: int,
    draw: Callable[[Random], T],
    passages: set[str],
    counts: Counter[str],
) -> Iterator[T]:
    """The examples of a split, each drawn from a seed of its own.

    draw: draws an example
    passages: the passages so far, none of which occurs again; those of the examples are added
    counts: counts the examples that are drawn again because their passage has occurred
    """
    for number in tqdm(range(size), desc=f"text/{split}", unit=" examples", disable=None):
        rng = Random(f"{seed} {split} {number}")
        example = draw(rng)
        while example.passage in passages:
            counts["repeated passages, replaced"] += 1
            example = draw(rng)
        passages.add(example.passage)
        yield example
