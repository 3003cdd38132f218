"""One fairseq criterion a file. Importing a file registers it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fairseq_memattn.host.patches import prepare_fairseq

prepare_fairseq()

from fairseq.criterions import FairseqCriterion  # noqa: E402


class SummedCriterion(FairseqCriterion):
    """A criterion whose logged values are numbers, which fairseq sums over batches."""

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        return True


def sums(logged: Sequence[Mapping[str, Any]], names: Iterable[str]) -> list[float]:
    """The sum of each value over batches, of which those of other processes may lack it."""
    return [sum(float(one.get(name, 0)) for one in logged) for name in names]
