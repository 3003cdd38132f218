"""Span corruption, T5's objective: the model predicts spans that are removed from a text.

Raffel et al., "Exploring the limits of transfer learning with a unified text-to-text transformer"
(2020), section 3.1.4 and figure 2. The mask and the lengths are those of the authors' code
(`random_spans_noise_mask` and `random_spans_helper` in its preprocessors).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from fairseq.data import FairseqDataset, TokenBlockDataset
from torch import Tensor

from fairseq_memattn.data.chunks import Chunking, collate_chunks, padded
from fairseq_memattn.errors import MemAttnError

MIN_LENGTH = 2  # tokens of a block: one to remove and one to keep
NO_BLOCK = f"no block of the text has {MIN_LENGTH} tokens or more"


@dataclass(frozen=True)
class Noise:
    """How many tokens are removed from a text.

    density: share of the tokens that are removed, between 0 and 1
    mean_span: mean length of the removed spans in tokens, at least 1
    """

    density: float = 0.15
    mean_span: float = 3.0

    def counts(self, length: int) -> tuple[int, int]:
        """The number of removed tokens, and the number of spans, in a text of `length` tokens.

        There is at least one kept token before each span, so there are at most as many spans as
        kept tokens.
        """
        tokens = min(max(round(length * self.density), 1), length - 1)
        spans = max(round(tokens / self.mean_span), 1)
        return tokens, min(spans, length - tokens)

    def corrupted(self, length: int) -> tuple[int, int]:
        """The lengths of the input and of the target for a text of `length` tokens.

        Both have one sentinel for each span, and eos at the end.
        """
        tokens, spans = self.counts(length)
        return length - tokens + spans + 1, tokens + spans + 1

    def block_length(self, source_length: int) -> int:
        """The largest length of a text whose input has at most `source_length` tokens.

        The input has exactly `source_length` tokens, unless nearly every other token is removed.

        source_length: at least 3
        """
        length = MIN_LENGTH
        while self.corrupted(length + 1)[0] <= source_length:
            length += 1
        return length

    def mask(self, length: int, random: np.random.Generator) -> np.ndarray:
        """A random mask (length,), True for removed tokens.

        The first token is kept and the last one is removed. All divisions of the removed tokens
        into spans are equally likely, and so are all divisions of the kept tokens.

        length: at least 2
        """
        tokens, spans = self.counts(length)
        kept = random_lengths(length - tokens, spans, random)
        removed = random_lengths(tokens, spans, random)
        return np.repeat(np.tile([False, True], spans), np.stack([kept, removed], axis=1).ravel())


def random_lengths(total: int, parts: int, random: np.random.Generator) -> np.ndarray:
    """(parts,) integers of at least 1 whose sum is `total`; all such arrays are equally likely."""
    ends = np.sort(random.choice(total - 1, parts - 1, replace=False)) + 1
    return np.diff(ends, prepend=0, append=total)


class Example(NamedTuple):
    """A corrupted text: the encoder's input and the decoder's target, which both end with eos."""

    source: np.ndarray
    target: np.ndarray


def corrupt(tokens: np.ndarray, mask: np.ndarray, sentinels: np.ndarray, eos: int) -> Example:
    """Removes spans from a text.

    In the source, each span is replaced by its sentinel. In the target, each span follows its
    sentinel. In T5's figure 2 the target ends with one more sentinel, because kept text follows the
    last span. With the masks of T5's code, and of this module, no text follows it.

    tokens, mask: (S,); `Noise.mask` returns the mask
    sentinels: at least as many as there are spans
    """
    source = with_sentinels(tokens, mask, sentinels)
    target = with_sentinels(tokens, ~mask, sentinels)
    return Example(np.append(source, eos), np.append(target, eos))


def with_sentinels(tokens: np.ndarray, mask: np.ndarray, sentinels: np.ndarray) -> np.ndarray:
    """The tokens, with each span in which the mask is True replaced by a sentinel."""
    first = mask.copy()
    first[1:] &= ~mask[:-1]
    result = tokens.copy()
    result[first] = sentinels[: first.sum()]
    return result[~mask | first]


class Lines:
    """The lines of a corpus of fairseq-preprocess, each without its eos.

    T5's texts do not contain eos, and inside a target it would end the generation.

    Raises MemAttnError for a line that does not end with eos.

    keep_empty: whether empty lines are among them
    """

    def __init__(self, corpus: Any, eos: int, *, keep_empty: bool = True) -> None:
        self.corpus, self.eos = corpus, eos
        sizes = np.asarray(corpus.sizes).astype(np.int64) - 1
        self.numbers = np.arange(len(sizes)) if keep_empty else np.flatnonzero(sizes)
        self.sizes = sizes[self.numbers]

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: int) -> Tensor:
        number = int(self.numbers[index])
        line = self.corpus[number]
        if not len(line) or line[-1] != self.eos:
            raise MemAttnError(f"line {number + 1} of the binarised text must end with </s>")
        return line[:-1]


def text_blocks(corpus: Any, mode: str, length: int, *, pad: int, eos: int) -> TokenBlockDataset:
    """fairseq's blocks of at most `length` tokens, without line ends.

    Raises MemAttnError for a text without a block.

    corpus: of fairseq-preprocess
    mode: none, complete, complete_doc or eos, as --sample-break-mode
    """
    # A block that ended with the first token after an empty line would lose it in fairseq.
    lines = Lines(corpus, eos, keep_empty=mode in ("complete_doc", "eos"))
    if not lines.sizes.sum():
        raise MemAttnError("the text is empty")
    if mode == "complete_doc":
        documents = np.cumsum(lines.sizes == 0)  # each line's, which an empty one ends
        if np.bincount(documents, weights=lines.sizes).max() < MIN_LENGTH:
            raise MemAttnError(NO_BLOCK)
    return TokenBlockDataset(lines, lines.sizes, length, pad, eos, mode, document_sep_len=0)


@dataclass(frozen=True)
class SpanOptions:
    """How examples are made from blocks of text.

    sentinels: their indices in the dictionary, in the order of their use
    pad, eos: indices of these symbols
    chunk_length: tokens of a chunk of the input
    chunks: number of chunks of an input
    seed: of the masks
    """

    noise: Noise
    sentinels: np.ndarray
    pad: int
    eos: int
    chunk_length: int
    chunks: int = 1
    seed: int = 1

    @property
    def chunking(self) -> Chunking:
        return Chunking(self.chunks, self.chunk_length)


class SpanCorruptionDataset(FairseqDataset):
    """A corrupted input and its target for each block of a text.

    blocks: fairseq's TokenBlockDataset. Blocks of fewer than 2 tokens are left out; `left_out` is
        their number
    training: whether each epoch draws new spans, and the examples are shuffled

    Raises MemAttnError if no block is left, and for a block that is too long for the input.
    """

    def __init__(self, blocks: Any, options: SpanOptions, *, training: bool = False) -> None:
        self.blocks, self.options, self.training = blocks, options, training
        self.epoch = 1
        # The data set's own `sizes` have only 16 bits.
        ends = np.asarray(blocks.slice_indices).astype(np.int64)
        lengths = ends[:, 1] - ends[:, 0]
        self.numbers = np.flatnonzero(lengths >= MIN_LENGTH)
        self.left_out = len(lengths) - len(self.numbers)
        if not len(self.numbers):
            raise MemAttnError(NO_BLOCK)
        source_length = options.chunks * options.chunk_length
        if lengths.max() > (most := options.noise.block_length(source_length)):
            raise MemAttnError(
                f"block {int(lengths.argmax()) + 1} of the text must have at most {most} "
                f"tokens with --source-length {source_length}, but has {lengths.max()}; use "
                "--sample-break-mode none, which splits long lines, or shorter lines"
            )
        distinct, indices = np.unique(lengths[self.numbers], return_inverse=True)
        sizes = np.array([options.noise.corrupted(int(length)) for length in distinct])
        self._sizes = sizes[indices]  # (blocks, 2): of input and target

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: int) -> dict[str, Any]:
        """A dictionary with `id`, `source` (S,) and `target` (T,)."""
        options = self.options
        tokens = self.blocks[self.numbers[index]].numpy()
        epoch = self.epoch if self.training else 0
        random = np.random.default_rng((options.seed, epoch, index))
        mask = options.noise.mask(len(tokens), random)
        source, target = corrupt(tokens, mask, options.sentinels, options.eos)
        return {"id": index, "source": torch.from_numpy(source), "target": torch.from_numpy(target)}

    def collater(
        self, samples: Sequence[dict[str, Any]], *, chunked: bool = True
    ) -> dict[str, Any]:
        """A batch of B examples, padded on the right.

        net_input: src_tokens (B, S), src_lengths (B,) and prev_output_tokens (B, T). With K chunks,
            src_tokens has the last chunk of each input, context_tokens (B, K - 1, C) has the other
            chunks in order, and context_padding_mask (B, K - 1, C) is True at padding. If an input
            fills fewer than K chunks, its first chunks are padding only.
        target: (B, T); ntokens is the number of its tokens, sentinels and eos included

        chunked: whether to split the inputs into chunks
        """
        if not samples:
            return {}
        options = self.options
        sources = [sample["source"] for sample in samples]
        parts = [options.chunking.split(row) if chunked else [row] for row in sources]
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
        """The tokens of the longest sequence that the encoder reads, and of the target."""
        source, target = self._sizes[index]
        return min(int(source), self.options.chunk_length), int(target)

    def ordered_indices(self) -> np.ndarray:
        """In training sorted by length, equal lengths shuffled; otherwise in order."""
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
    """The mean loss of a token in nats, from fairseq's meters, which are in base 2."""
    mean = meters["nll_loss" if "nll_loss" in meters else "loss"].avg
    return round(float(mean) * math.log(2), 3)


MOST_SENTINELS = 100_000  # T5 has 100


def add_sentinels(dictionary: Any, count: int) -> np.ndarray:
    """The indices (count,) of `<extra_id_0>`, `<extra_id_1>`, ... in a fairseq dictionary.

    If the dictionary has none of them, they are added at its end in T5's order, in which
    `<extra_id_0>` is the last symbol. If it has all of them, as the dictionary of a converted T5,
    it is not changed.

    Raises MemAttnError for a dictionary that has only some of them.
    """
    names = [f"<extra_id_{number}>" for number in range(count)]
    missing = [name for name in names if name not in dictionary]
    if 0 < len(missing) < count:
        raise MemAttnError(
            f"the dictionary has {count - len(missing)} of the {count} symbols of --sentinels "
            f"{count}, but not {missing[0]}; set --sentinels to the number that it has, and do "
            "not binarise text that contains such symbols"
        )
    for name in reversed(missing):
        dictionary.add_symbol(name)
    return np.array([dictionary.index(name) for name in names])
