"""Word alignments: from a file in the Pharaoh format, or estimated from the sentences themselves.

The estimate is the reparameterised IBM model 2 of Dyer et al. (2013, "A Simple, Fast, and Effective
Reparameterization of IBM Model 2"), in both directions, of which it keeps the intersection.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fairseq_memattn.evaluation.fairseq_output import read_lines

Words = Sequence[str]
Links = list[tuple[int, int]]

ALIGNER = "ibm2-diagonal-intersection"
TENSION, NULL_PROBABILITY, ITERATIONS = 4.0, 0.08, 5  # the initial values of Dyer et al.
# The memory that a pair of words takes at most, which it does in NumPy's `unique`.
BYTES_OF_A_PAIR = 72
PAIR = re.compile(r"(\d+)-(\d+)", re.ASCII)


def read_alignments(
    option: str, path: Path, sources: Sequence[Words], targets: Sequence[Words]
) -> list[Links]:
    """The links of each line, such as `0-0 1-2`: positions in source and target, counted from 0.

    Raises ValueError, which names option, file and line, for another number of lines, for text that
    is no pair of positions, and for positions that a sentence does not have.
    """
    lines = read_lines(path)
    if len(lines) != len(sources):
        raise ValueError(f"{option} {path} has {len(lines)} lines, but --source has {len(sources)}")
    alignments = []
    for number, line in enumerate(lines):
        links = []
        for text in line.split():
            pair = PAIR.fullmatch(text)
            if pair is None:
                raise ValueError(
                    f"{option} {path}, line {number + 1}: {text!r} is no link such as 0-1"
                )
            link = int(pair[1]), int(pair[2])
            counts = len(sources[number]), len(targets[number])
            for side, position, count in zip(("source", "translation"), link, counts, strict=True):
                if position >= count:
                    raise ValueError(
                        f"{option} {path}, line {number + 1}: {text} has position {position} of "
                        f"the {side}, which has {count} tokens"
                    )
            links.append(link)
        alignments.append(sorted(set(links)))
    return alignments


def alignment_memory(sources: Sequence[Words], targets: Sequence[Words]) -> int:
    """The bytes of memory that `align_words` takes."""
    pairs = zip(sources, targets, strict=True)
    return BYTES_OF_A_PAIR * sum((len(source) + 1) * (len(target) + 1) for source, target in pairs)


def align_words(sources: Sequence[Words], targets: Sequence[Words]) -> list[Links]:
    """Estimates a model from the sentence pairs, without regard to case, and aligns them.

    Returns the links of each pair on which both directions agree; each word has at most one.
    """
    to_source = _most_probable(_encode(sources), _encode(targets))
    to_target = _most_probable(_encode(targets), _encode(sources))
    return [
        [(j, i) for j, i in enumerate(forth) if i >= 0 and back[i] == j]
        for back, forth in zip(to_source, to_target, strict=True)
    ]


def _encode(sentences: Sequence[Words]) -> list[np.ndarray]:
    """The number of each word, from 1; 0 is for the word NULL, to which spurious words align."""
    numbers: dict[str, int] = {}
    return [
        np.array([numbers.setdefault(word.casefold(), len(numbers) + 1) for word in words], int)
        for words in sentences
    ]


class _Cells(NamedTuple):
    """All pairs of a target word with NULL or a word of its source, a row for each target word.

    types: the number of the pair of word types; sources: the source word of each type
    prior: the probability of the position of the source word
    starts, sizes: of the rows; sentences: the number of source and target words of each pair
    """

    types: np.ndarray
    sources: np.ndarray
    prior: np.ndarray
    starts: np.ndarray
    sizes: np.ndarray
    sentences: list[tuple[int, int]]


def _cells(sources: Sequence[np.ndarray], targets: Sequence[np.ndarray]) -> _Cells:
    width = 1 + max((int(words.max()) for words in targets if len(words)), default=0)
    keys, prior, sizes, sentences = [], [], [], []
    for source, target in zip(sources, targets, strict=True):
        n, m = len(source), len(target)
        candidates = np.concatenate([[0], source])
        keys.append((candidates[None] * width + target[:, None]).ravel())
        prior.append(_position_prior(n, m).ravel())
        sizes.append(np.full(m, n + 1))
        sentences.append((n, m))
    types, inverse = np.unique(np.concatenate(keys), return_inverse=True)
    lengths = np.concatenate(sizes)
    starts = np.cumsum(lengths) - lengths
    indices = inverse.astype(np.int32)
    return _Cells(indices, types // width, np.concatenate(prior), starts, lengths, sentences)


def _position_prior(n: int, m: int) -> np.ndarray:
    """(m, n + 1): the probability of NULL and of each of n source positions, for m target words.

    Words at the same relative position are the most probable.
    """
    # An axis without words has no positions to divide.
    rows, columns = ((np.arange(count) + 0.5) / max(count, 1) for count in (m, n))
    distance = np.abs(rows[:, None] - columns)
    near = np.exp(-TENSION * distance)
    if n:
        near *= (1 - NULL_PROBABILITY) / near.sum(1, keepdims=True)
    return np.concatenate([np.full((m, 1), NULL_PROBABILITY), near], 1).astype(np.float32)


def _most_probable(sources: Sequence[np.ndarray], targets: Sequence[np.ndarray]) -> list[list[int]]:
    """For each target word the position of its most probable source word; -1 for NULL.

    Expectation maximisation of the translation probabilities, which start as equal.
    """
    cells = _cells(sources, targets)
    translation = np.ones(len(cells.sources), np.float32)
    for _ in range(ITERATIONS):
        joint = translation[cells.types] * cells.prior
        joint /= np.repeat(np.add.reduceat(joint, cells.starts), cells.sizes)
        counts = np.bincount(cells.types, joint, len(cells.sources))
        totals = np.bincount(cells.sources, counts)
        translation = (counts / totals[cells.sources]).astype(np.float32)
    joint = translation[cells.types] * cells.prior
    best, start = [], 0
    for n, m in cells.sentences:
        stop = start + (n + 1) * m
        best.append((joint[start:stop].reshape(m, n + 1).argmax(1) - 1).tolist())
        start = stop
    return best
