"""Long inputs in chunks of equal length, for models that encode several sequences."""

from collections.abc import Sequence
from typing import Any

import torch
from fairseq.data import BaseWrapperDataset
from fairseq.data.data_utils import collate_tokens
from torch import Tensor

from fairseq_memattn.errors import MemAttnError


def check_chunks(model: Any, chunks: int) -> None:
    """Raises MemAttnError for a model that takes fewer sequences than `--chunks`.

    A model that takes several sequences has `takes_sequences = True` and `max_sequences()`.
    """
    if chunks > 1 and not getattr(model, "takes_sequences", False):
        raise MemAttnError(
            f"--chunks {chunks} needs a model that takes several sequences, such as t5mem_v4, but "
            f"{type(model).__name__} takes one"
        )
    if chunks > 1 and chunks > (most := model.max_sequences()):
        raise MemAttnError(f"--chunks must be at most --t5mem-sequences {most}, but is {chunks}")


def split_chunks(tokens: Tensor, chunks: int, length: int) -> list[Tensor]:
    """Splits tokens (S,) into K chunks, in order. All chunks but the last have C tokens.

    If S tokens fill fewer than K chunks, the first chunks are empty. The last one never is.

    chunks: K; length: C

    Raises ValueError unless S is from 1 to K * C.
    """
    if not 1 <= len(tokens) <= chunks * length:
        raise ValueError(
            f"{chunks} chunks of {length} must have 1 to {chunks * length} tokens, but there "
            f"are {len(tokens)}"
        )
    parts = list(tokens.split(length))
    return [tokens[:0]] * (chunks - len(parts)) + parts


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


def chunk_inputs(sample: dict[str, Any], chunks: int, length: int, pad: int) -> dict[str, Any]:
    """A batch of `UnchunkedInputs` with its inputs in chunks, see `collate_chunks`.

    sample: the batch; if its inputs are in chunks already, it is returned unchanged
    chunks: K; length: C
    """
    net_input = sample["net_input"]
    if chunks == 1 or "context_tokens" in net_input:
        return sample
    rows = zip(net_input["src_tokens"], net_input["src_lengths"].tolist(), strict=True)
    parts = [split_chunks(row[:size], chunks, length) for row, size in rows]
    device = net_input["src_tokens"].device
    cut = {name: tensor.to(device) for name, tensor in collate_chunks(parts, pad).items()}
    return {**sample, "net_input": {**net_input, **cut}}


def padded(rows: Sequence[Tensor], pad: int) -> Tensor:
    """B rows as one tensor (B, T), padded on the right. T is the length of the longest row."""
    return collate_tokens([row.long() for row in rows], pad)
