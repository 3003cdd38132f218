"""Segments of documents as rows of a batch, one for each sentence."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fairseq_memattn.data.documents.collation import WindowCollater


class Segment(NamedTuple):
    """The sentences of a source and of its translation, each ending with eos; target may be None"""

    source: Sequence[Tensor]
    target: Sequence[Tensor] | None


def segment_rows(
    collate: WindowCollater, segments: Sequence[Segment]
) -> tuple[dict[str, Any], Tensor | None]:
    """The inputs of a model for B segments of up to K sentences, and its targets (B K, T).

    A shorter segment is filled up with rows that have no target.

    Returns src_tokens (B K, S), src_lengths (B K,), `sentences` K and, with targets,
    prev_output_tokens (B K, T).
    """
    options = collate.options
    end, nothing = torch.tensor([options.eos]), torch.tensor([options.pad])
    most = max(len(segment.source) for segment in segments)
    sources = [row for one in segments for row in _filled(one.source, most, end)]
    inputs: dict[str, Any] = collate.source_rows(sources) | {"sentences": most}
    if segments[0].target is None:
        return inputs, None
    rows = [row for one in segments for row in _filled(one.target or (), most, nothing)]
    shifted = [torch.cat([end, row[:-1]]) for row in rows]
    inputs["prev_output_tokens"] = collate.pad(shifted, left=False)
    return inputs, collate.pad(rows, left=False)


def _filled(sentences: Sequence[Tensor], count: int, filler: Tensor) -> list[Tensor]:
    return [*sentences, *[filler] * (count - len(sentences))]
