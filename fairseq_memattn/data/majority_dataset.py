"""MAJORITY(L, p) as a fairseq data set that generates examples on demand."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from fairseq.data import FairseqDataset
from torch import Tensor

from fairseq_memattn.data.majority import Integers, Majority
from fairseq_memattn.errors import MemAttnError


class MajorityDataset(FairseqDataset):
    """Sequences and their tags. Only one batch at a time is in memory.

    split: train, valid or test
    size: number of examples
    symbols: (2p + 1,), the dictionary's index of each integer; the entry of 0 is not used
    fresh: whether each epoch has different examples
    """

    def __init__(
        self, majority: Majority, split: str, size: int, symbols: Tensor, fresh: bool
    ) -> None:
        super().__init__()
        self.majority = majority
        self.split = split
        self.examples = size
        self.symbols = symbols
        self.fresh = fresh
        self.epoch = 0

    def __len__(self) -> int:
        return self.examples

    def __getitem__(self, index: int) -> dict[str, Any]:
        """A dictionary with `id`, `source` (L,) and `target` (L,)."""
        sequence = self.majority.sequence(self.split, int(index), self.epoch)
        tags = self.majority.tags(sequence)
        return {"id": index, "source": self.symbols[sequence], "target": self.symbols[tags]}

    def collater(self, samples: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """A batch: src_tokens and target (B, L), src_lengths (B,)."""
        if not samples:
            return {}
        tokens = torch.stack([sample["source"] for sample in samples])
        lengths = torch.full((len(samples),), self.majority.length)
        return {
            "id": torch.tensor([sample["id"] for sample in samples]),
            "nsentences": len(samples),
            "ntokens": tokens.numel(),
            "net_input": {"src_tokens": tokens, "src_lengths": lengths},
            "target": torch.stack([sample["target"] for sample in samples]),
        }

    def num_tokens(self, index: int) -> int:
        return self.majority.length

    def num_tokens_vec(self, indices: Integers) -> Integers:
        return np.full(len(indices), self.majority.length)

    def size(self, index: int) -> int:
        return self.majority.length

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
        if max_tokens is not None and max_tokens < self.majority.length:
            raise MemAttnError(
                f"--max-tokens must be at least --length {self.majority.length}, but is "
                f"{max_tokens}; raise it, or use --batch-size"
            )
        return super().batch_by_size(indices, max_tokens, max_sentences)

    def set_epoch(self, epoch: int) -> None:
        if self.fresh:
            self.epoch = epoch

    @property
    def can_reuse_epoch_itr_across_epochs(self) -> bool:
        return not self.fresh
