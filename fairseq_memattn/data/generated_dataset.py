"""A fairseq data set of examples that are generated on demand."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from fairseq.data import FairseqDataset
from numpy.typing import NDArray
from torch import Tensor

from fairseq_memattn.errors import MemAttnError

Integers = NDArray[np.int64]
SPLITS = ("train", "valid", "test")


class Examples(Protocol):
    """Examples of one length, each of which depends on the split, its number and the epoch only."""

    @property
    def length(self) -> int: ...

    def example(self, split: str, number: int, epoch: int) -> tuple[Integers, Integers]:
        """The symbols (length,) of a sequence and those of its targets."""
        ...


class GeneratedDataset(FairseqDataset):
    """Sequences and their targets. Only one batch at a time is in memory.

    split: train, valid or test
    size: number of examples
    symbols: the dictionary's index of each symbol
    fresh: whether each epoch has different examples
    """

    def __init__(
        self, examples: Examples, split: str, size: int, symbols: Tensor, fresh: bool
    ) -> None:
        super().__init__()
        self.examples = examples
        self.split = split
        self.count = size
        self.symbols = symbols
        self.fresh = fresh
        self.epoch = 0

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, Any]:
        """A dictionary with `id`, `source` (L,) and `target` (L,)."""
        source, target = self.examples.example(self.split, int(index), self.epoch)
        return {"id": index, "source": self.symbols[source], "target": self.symbols[target]}

    def collater(self, samples: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """A batch: src_tokens and target (B, L), src_lengths (B,)."""
        if not samples:
            return {}
        tokens = torch.stack([sample["source"] for sample in samples])
        lengths = torch.full((len(samples),), self.examples.length)
        return {
            "id": torch.tensor([sample["id"] for sample in samples]),
            "nsentences": len(samples),
            "ntokens": tokens.numel(),
            "net_input": {"src_tokens": tokens, "src_lengths": lengths},
            "target": torch.stack([sample["target"] for sample in samples]),
        }

    def num_tokens(self, index: int) -> int:
        return self.examples.length

    def num_tokens_vec(self, indices: Integers) -> Integers:
        return np.full(len(indices), self.examples.length)

    def size(self, index: int) -> int:
        return self.examples.length

    def batch_by_size(
        self,
        indices: Integers,
        max_tokens: int | None = None,
        max_sentences: int | None = None,
        required_batch_size_multiple: int = 1,
    ) -> Any:
        """Batches of all examples; `required_batch_size_multiple` is ignored.

        fairseq would leave out the last examples if their number is not a multiple.

        Raises MemAttnError if `max_tokens` is less than the length of an example.
        """
        if max_tokens is not None and max_tokens < self.examples.length:
            raise MemAttnError(
                f"--max-tokens must be at least --length {self.examples.length}, but is "
                f"{max_tokens}; raise it, or use --batch-size"
            )
        return super().batch_by_size(indices, max_tokens, max_sentences)

    def set_epoch(self, epoch: int) -> None:
        if self.fresh:
            self.epoch = epoch

    @property
    def can_reuse_epoch_itr_across_epochs(self) -> bool:
        return not self.fresh
