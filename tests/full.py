"""Cases of a parametrised test that run with --full only."""

from collections.abc import Iterable

import pytest


def full(*case: object) -> object:
    """A case for `pytest.mark.parametrize`."""
    return pytest.param(*case, marks=pytest.mark.full)


def others_in_full(values: Iterable[object], default: Iterable[object]) -> list[object]:
    """The values of one parameter, of which those in `default` run without --full too."""
    values, default = list(values), list(default)
    assert default and all(one in values for one in default)
    return [one if one in default else full(one) for one in values]
