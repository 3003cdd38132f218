"""T5's objective: spans are cut out of a text, and the model says what they were.

Raffel et al., "Exploring the limits of transfer learning with a unified text-to-text transformer"
(2020), section 3.1.4 and figure 2, with the mask and the lengths of the code they published
(`random_spans_noise_mask` and `random_spans_helper` of its preprocessors).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from fairseq.data import FairseqDataset
from torch import Tensor

from fairseq_memattn.data.chunks import collate_chunks, padded, split_chunks
from fairseq_memattn.errors import MemAttnError

SHORTEST = 2  # tokens: one to cut out and one to keep


@dataclass(frozen=True)
class Noise:
    """How much of a text is cut out.

    density: the part of the tokens, between 0 and 1
    mean_span: the mean length of the spans in tokens, 1 or more
    """

    density: float = 0.15
    mean_span: float = 3.0

    def counts(self, length: int) -> tuple[int, int]:
        """Of so many tokens: how many are cut out, and in how many spans.

        Between two spans a token is left, so that there are never more spans than tokens kept.
        """
        tokens = min(max(round(length * self.density), 1), length - 1)
        spans = max(round(tokens / self.mean_span), 1)
        return tokens, min(spans, length - tokens)

    def corrupted(self, length: int) -> tuple[int, int]:
        """The lengths of the input and of the target that so many tokens become.

        Both have a sentinel a span, and eos at the end.
        """
        tokens, spans = self.counts(length)
        return length - tokens + spans + 1, tokens + spans + 1

    def block_length(self, source_length: int) -> int:
        """The most tokens whose input has no more than `source_length` tokens, 3 or more.

        The input then has exactly as many, unless nearly every other token is cut out.
        """
        length = SHORTEST
        while self.corrupted(length + 1)[0] <= source_length:
            length += 1
        return length

    def mask(self, length: int, random: np.random.Generator) -> np.ndarray:
        """(length,), True where a token is cut out; of 2 tokens or more.

        It begins with a token that is kept and ends with one that is cut out. All ways to divide
        the tokens cut out into spans are equally likely, and so are those for the tokens kept.
        """
        tokens, spans = self.counts(length)
        kept = random_lengths(length - tokens, spans, random)
        cut = random_lengths(tokens, spans, random)
        return np.repeat(np.tile([False, True], spans), np.stack([kept, cut], axis=1).ravel())


def random_lengths(total: int, parts: int, random: np.random.Generator) -> np.ndarray:
    """(parts,): numbers of 1 or more that add up to `total`, all such lists equally likely."""
    ends = np.sort(random.choice(total - 1, parts - 1, replace=False)) + 1
    return np.diff(ends, prepend=0, append=total)


class Example(NamedTuple):
    """A corrupted text, what the encoder reads and what the decoder should say; both end in eos."""

    source: np.ndarray
    target: np.ndarray


def corrupt(tokens: np.ndarray, mask: np.ndarray, sentinels: np.ndarray, eos: int) -> Example:
    """Cuts spans out of a text.

    In the source each span is replaced by a sentinel of its own, in the target it stands behind
    that sentinel. T5's figure 2 has one more sentinel at the end of the target, for the text that
    follows the last span; with the masks of its code, and of this module, none follows.
    tokens, mask: (S,), mask as `Noise.mask` gives it
    sentinels: as many as there are spans, or more
    """
    source = with_sentinels(tokens, mask, sentinels)
    target = with_sentinels(tokens, ~mask, sentinels)
    return Example(np.append(source, eos), np.append(target, eos))


def with_sentinels(tokens: np.ndarray, mask: np.ndarray, sentinels: np.ndarray) -> np.ndarray:
    """The tokens, with a sentinel in the place of each span in which the mask is True."""
    first = mask.copy()
    first[1:] &= ~mask[:-1]
    result = tokens.copy()
    result[first] = sentinels[: first.sum()]
    return result[~mask | first]


class Lines:
    """The lines of a corpus of fairseq-preprocess, without the eos that ends each.

    T5's texts have none either; in a target it would end the generation too soon.
    Raises MemAttnError for a line that does not end with eos.
    """

    def __init__(self, corpus: Any, eos: int) -> None:
        self.corpus, self.eos = corpus, eos
        self.sizes = np.asarray(corpus.sizes).astype(np.int64) - 1

    def __len__(self) -> int:
        return len(self.corpus)

    def __getitem__(self, index: int) -> Tensor:
        line = self.corpus[index]
        if not len(line) or line[-1] != self.eos:
            raise MemAttnError(f"line {index + 1} of the binarised text has no end (</s>)")
        return line[:-1]


@dataclass(frozen=True)
class SpanOptions:
    """How blocks of text become examples.

    sentinels: indices of the dictionary, in the order of their use
    chunk_length: of an input that is divided, in tokens; chunks: how many
    """

    noise: Noise
    sentinels: np.ndarray
    pad: int
    eos: int
    chunk_length: int
    chunks: int = 1
    seed: int = 1


class SpanCorruptionDataset(FairseqDataset):
    """For each block of a text an input with gaps, and what belongs there.

    blocks: fairseq's TokenBlockDataset; those of fewer than 2 tokens are left out (`left_out`)
    training: whether spans are drawn anew in every epoch, and batches come in any order
    Raises MemAttnError where no block is left, or one is longer than the input allows.
    """

    def __init__(self, blocks: Any, options: SpanOptions, *, training: bool = False) -> None:
        self.blocks, self.options, self.training = blocks, options, training
        self.epoch = 1
        # The block data set's own `sizes` are of 16 bits.
        ends = np.asarray(blocks.slice_indices).astype(np.int64)
        lengths = ends[:, 1] - ends[:, 0]
        self.numbers = np.flatnonzero(lengths >= SHORTEST)
        self.left_out = len(lengths) - len(self.numbers)
        if not len(self.numbers):
            raise MemAttnError(f"no block of the text has {SHORTEST} tokens or more")
        self._check_lengths(lengths)
        different, which = np.unique(lengths[self.numbers], return_inverse=True)
        sizes = np.array([options.noise.corrupted(int(length)) for length in different])
        self._sizes = sizes[which]  # (blocks, 2): of input and target

    def _check_lengths(self, lengths: np.ndarray) -> None:
        source_length = self.options.chunks * self.options.chunk_length
        most = self.options.noise.block_length(source_length)
        if lengths.max() > most:
            raise MemAttnError(
                f"block {int(lengths.argmax()) + 1} of the text has {lengths.max()} tokens, but "
                f"--source-length {source_length} has room for what {most} become; take "
                "--sample-break-mode none, which cuts long lines, or shorter lines"
            )

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: int) -> dict[str, Any]:
        """id, and source and target, 1-dimensional."""
        options = self.options
        tokens = self.blocks[self.numbers[index]].numpy()
        epoch = self.epoch if self.training else 0
        random = np.random.default_rng((options.seed, epoch, index))
        mask = options.noise.mask(len(tokens), random)
        source, target = corrupt(tokens, mask, options.sentinels, options.eos)
        return {
            "id": index,
            "source": torch.from_numpy(source),
            "target": torch.from_numpy(target),
        }

    def collater(
        self, samples: Sequence[dict[str, Any]], *, chunked: bool = True
    ) -> dict[str, Any]:
        """A batch of B examples, padded on the right.

        net_input: src_tokens (B, S), src_lengths (B,), prev_output_tokens (B, T); with K chunks
            src_tokens are the last ones, context_tokens (B, K - 1, C) those before it, oldest
            first, and context_padding_mask (B, K - 1, C) is True at padding. A short input fills
            chunks from its start; those that it lacks are padding, before its first.
        target: (B, T); ntokens counts its tokens, sentinels and eos included

        chunked: whether to cut the inputs into chunks
        """
        if not samples:
            return {}
        options = self.options
        chunks = options.chunks if chunked else 1
        length = options.chunks * options.chunk_length // chunks
        parts = [split_chunks(sample["source"], chunks, length) for sample in samples]
        targets = [sample["target"] for sample in samples]
        inputs = padded([row.roll(1) for row in targets], options.pad)
        return {
            "id": torch.tensor([sample["id"] for sample in samples]),
            "nsentences": len(samples),
            "ntokens": sum(map(len, targets)),
            "net_input": {**collate_chunks(parts, options.pad), "prev_output_tokens": inputs},
            "target": padded(targets, options.pad),
        }

    def num_tokens(self, index: int) -> int:
        return int(self._sizes[index].max())

    def num_tokens_vec(self, indices: np.ndarray) -> np.ndarray:
        return self._sizes[indices].max(axis=1)

    def size(self, index: int) -> tuple[int, int]:
        """Of what a model reads at once, and of the target."""
        source, target = self._sizes[index]
        return min(int(source), self.options.chunk_length), int(target)

    def ordered_indices(self) -> np.ndarray:
        """In training by length, shuffled where lengths are equal; else as the blocks come."""
        if not self.training:
            return np.arange(len(self))
        order = np.random.permutation(len(self))
        return order[np.argsort(self._sizes[order, 0], kind="mergesort")]

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    @property
    def can_reuse_epoch_itr_across_epochs(self) -> bool:
        return not self.training


def natural(meters: Any) -> float:
    """The mean loss a token in nats, of fairseq's meters, which count in base 2."""
    mean = meters["nll_loss" if "nll_loss" in meters else "loss"].avg
    return round(float(mean) * math.log(2), 3)
