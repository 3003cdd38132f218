"""Long inputs in chunks, for models that encode several sequences."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from fairseq.data import BaseWrapperDataset
from fairseq.data.data_utils import collate_tokens
from torch import Tensor


@dataclass(frozen=True)
class Chunking:
    """How an input is cut into K chunks of at most C tokens, in order.

    Each chunk begins with the first Q tokens of its input, such as a question. Every chunk but the
    first repeats after these the last O tokens of the chunk before it. Then come the tokens that
    follow. All chunks but the last have C tokens.

    chunks: K; length: C; overlap: O, less than C - Q

    Methods take Q as `head`. Sizes and heads are integers, or arrays (B,) of them.
    """

    chunks: int
    length: int
    overlap: int = 0

    def step(self, head: Any = 0) -> Any:
        """C - Q - O, the tokens that a chunk adds to those before it."""
        return self.length - head - self.overlap

    def capacity(self, head: Any = 0) -> Any:
        """The tokens of the longest input."""
        return head + self.overlap + self.chunks * self.step(head)

    def filled(self, size: Any, head: Any = 0) -> Any:
        """The chunks that an input of S tokens fills."""
        return np.maximum(1, -(-(size - head - self.overlap) // self.step(head)))

    def tokens(self, size: Any, head: Any = 0) -> Any:
        """The tokens of all chunks of an input of S tokens, with those that are repeated."""
        return size + (self.filled(size, head) - 1) * (head + self.overlap)

    def split(self, tokens: Tensor, head: int = 0) -> list[Tensor]:
        """The K chunks of an input (S,).

        If it fills fewer than K chunks, the first chunks are empty. The last one never is.

        Raises ValueError unless S is from 1 to the capacity.
        """
        size = len(tokens)
        if not 1 <= size <= self.capacity(head):
            raise ValueError(
                f"{self.chunks} chunks of {self.length} must have 1 to {self.capacity(head)} "
                f"tokens, but there are {size}"
            )
        first, rest, count = tokens[:head], tokens[head:], int(self.filled(size, head))
        begins = (number * self.step(head) for number in range(count))
        parts = [torch.cat([first, rest[begin : begin + self.length - head]]) for begin in begins]
        return [tokens[:0]] * (self.chunks - count) + parts


def collate_chunks(rows: Sequence[Sequence[Tensor]], pad: int) -> dict[str, Tensor]:
    """The encoder's arguments for B inputs of K chunks each, padded on the right.

    src_tokens: (B, S), the last chunk of each input; src_lengths: (B,)
    context_tokens: (B, K - 1, S'), the other chunks in order; absent if K = 1
    context_padding_mask: (B, K - 1, S'), True at padding; an empty chunk is padding only
    """
    last = [row[-1] for row in rows]
    batch = {
        "src_tokens": padded(last, pad),
        "src_lengths": torch.tensor([len(chunk) for chunk in last]),
    }
    before = len(rows[0]) - 1
    if before:
        flat = padded([chunk for row in rows for chunk in row[:-1]], pad)
        tokens = flat.view(len(rows), before, flat.shape[1])
        batch |= {"context_tokens": tokens, "context_padding_mask": tokens.eq(pad)}
    return batch


class UnchunkedInputs(BaseWrapperDataset):
    """A data set of chunked inputs whose batches have each input as one sequence.

    fairseq-generate prints the `src_tokens` of a batch, so they must be the whole input.
    `chunk_inputs` splits them for the model.
    """

    def collater(self, samples: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """The batch of the data set, with whole inputs as src_tokens (B, S)."""
        batch: dict[str, Any] = self.dataset.collater(samples, chunked=False)
        return batch


def chunk_inputs(
    sample: dict[str, Any], split: Callable[[Tensor], list[Tensor]], pad: int
) -> dict[str, Any]:
    """A batch of `UnchunkedInputs` with its inputs in chunks, see `collate_chunks`.

    Its source_lengths (B,) are those of the whole inputs.

    sample: the batch; if its inputs are in chunks already, it is returned unchanged
    split: returns the K chunks of an input (S,)
    """
    net_input = sample["net_input"]
    if "context_tokens" in net_input:
        return sample
    rows = zip(net_input["src_tokens"], net_input["src_lengths"].tolist(), strict=True)
    parts = [split(row[:size]) for row, size in rows]
    device = net_input["src_tokens"].device
    cut = {name: tensor.to(device) for name, tensor in collate_chunks(parts, pad).items()}
    whole = net_input["src_lengths"]
    return {**sample, "net_input": {**net_input, **cut}, "source_lengths": whole}


def padded(rows: Sequence[Tensor], pad: int) -> Tensor:
    """B rows as one tensor (B, T), padded on the right. T is the length of the longest row."""
    return collate_tokens([row.long() for row in rows], pad)
