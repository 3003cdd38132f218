"""Graphs of `StepGraph` without a GPU: a step is traced, and its operations are repeated.

As with a CUDA graph, Python does not run again, numbers that it has computed are constants, and a
number that is read from a tensor is an error.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.functional import one_hot
from torch.overrides import TorchFunctionMode

from fairseq_memattn.attention import step_graph
from fairseq_memattn.attention.ops import common
from fairseq_memattn.attention.step_graph import tensors


class UncheckedOneHot(TorchFunctionMode):
    """`one_hot` looks at its numbers on a CPU, and not on a GPU."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if function is not one_hot:
            return function(*args, **(kwargs or {}))
        index, count = args
        return (index.unsqueeze(-1) == torch.arange(count)).long()


class Recorded:
    """Counts recordings and replays, in the place of `step_graph.record`, which a GPU uses."""

    def __init__(self) -> None:
        self.graphs = self.replays = 0

    def __call__(self, run: Callable[[], Any], given: list[Tensor]) -> tuple[Any, Any]:
        out, replay = (on_gpu if given[0].is_cuda else traced)(run, given)
        self.graphs += 1

        def counted() -> None:
            self.replays += 1
            replay()

        return out, counted


on_gpu = step_graph.record


def traced(run: Callable[[], Any], given: list[Tensor]) -> tuple[Any, Callable[[], Any]]:
    kept, results = [x.clone() for x in given], []

    def flat(*unused: Tensor) -> list[Tensor]:
        results.append(run())
        return tensors(results[0])

    with UncheckedOneHot():
        graph = make_fx(flat)(*given)
    for x, before in zip(given, kept, strict=True):
        x.copy_(before)  # a recording does not run
    written = tensors(results[0])

    def replay() -> None:
        for x, new in zip(written, graph(*given), strict=True):
            x.copy_(new)

    return results[0], replay


def record_graphs(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    """Steps on a CPU are recorded, and compute what they do on a GPU."""
    recorded = Recorded()
    monkeypatch.setattr(step_graph, "record", recorded)
    monkeypatch.setattr(step_graph, "DEVICES", {"cpu", "cuda"})
    monkeypatch.setattr(common, "IMMEDIATE", set())
    monkeypatch.setenv("MEMATTN_GRAPHS", "1")
    return recorded
