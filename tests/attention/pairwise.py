"""Parameters of a test in pairs, where all combinations of them would be too many."""

from itertools import combinations, product

import pytest


def rows(axes):
    """Few combinations in which any two values of two axes meet. axes: lists of values."""
    indices = [range(len(axis)) for axis in axes]
    wanted = {
        pair
        for (a, first), (b, second) in combinations(enumerate(indices), 2)
        for pair in product([(a, i) for i in first], [(b, j) for j in second])
    }
    chosen = []
    while wanted:
        row = max(product(*indices), key=lambda row: len(wanted & set(pairs_of(row))))
        wanted -= set(pairs_of(row))
        chosen.append(tuple(axis[i] for axis, i in zip(axes, row, strict=True)))
    return chosen


def pairs_of(row):
    return combinations(enumerate(row), 2)


def pairwise(indirect=(), **axes):
    """`pytest.mark.parametrize`, by name: any two values of two arguments meet in some test."""
    values = rows([list(axis) for axis in axes.values()])
    return pytest.mark.parametrize(tuple(axes), values, indirect=list(indirect), ids=name)


def name(value):
    """Of a parameter: the same in every process, also for a function."""
    return getattr(value, "__name__", str(value))
