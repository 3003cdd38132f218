"""A decoding step as one CUDA graph, which a GPU repeats without Python.

A step over a bounded memory has the same shapes at every position. Its launches are therefore
recorded once, over tensors that stay where they are, and replayed for every further token.
"""

import os
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

S = TypeVar("S")
Signature = tuple[TreeSpec, list[Any]]

DEVICES = {"cuda"}  # that have graphs


def wants_graphs(x: Tensor) -> bool:
    """Whether steps of x's device are graphs: MEMATTN_GRAPHS=1, a GPU, and no gradients."""
    return (
        os.environ.get("MEMATTN_GRAPHS") == "1"
        and x.device.type in DEVICES
        and not torch.is_grad_enabled()
    )


class StepGraph:
    """A step of constant shape, recorded as a CUDA graph at its second call.

    step: from a state and inputs to an output and the state after. All of them are nested
        tuples, named tuples, lists and dictionaries of tensors; anything else in them is a
        constant of the graph. It does not change the given state, waits for no number of the
        device, and computes no gradients.

    As long as a step changes the shapes of its state, as those of softmax attention do, and after
    the batch has changed, it runs as it is. Output and state of a replay are overwritten by the
    next one. Rows of the state may be reordered between steps; the graph reads the given state.

    For a layer `attn` of causal attention:

        step = StepGraph(lambda state, x: attn.step(x, state))
        out, state = attn.step(prompt)
        for x in inputs:  # (B, 1, E)
            out, state = step(state, x)
    """

    def __init__(self, step: Callable[..., tuple[Any, Any]]) -> None:
        self._step = step
        self._signature: Signature | None = None  # of the last step, if it kept its shapes
        self._replay: Callable[[], Any] | None = None
        self._given: list[Tensor] = []  # the tensors that the graph reads
        self._results: tuple[Any, Any] | None = None

    @torch.no_grad()
    def __call__(self, state: S, *inputs: Tensor | None) -> tuple[Any, S]:
        leaves, spec = tree_flatten((state, inputs))
        signature = spec, [described(x) for x in leaves]
        if signature != self._signature:
            out, after = self._step(state, *inputs)
            leaves, spec = tree_flatten((after, inputs))
            keeps = signature == (spec, [described(x) for x in leaves])
            self._signature, self._replay = signature if keeps else None, None
            return out, after
        if self._replay is None:
            self._record(leaves, spec)
        else:
            overwrite(self._given, tensors(leaves))
        assert self._replay is not None and self._results is not None
        self._replay()
        return self._results

    def __deepcopy__(self, memo: Any) -> "StepGraph":
        return StepGraph(self._step)

    def _record(self, leaves: list[Any], spec: TreeSpec) -> None:
        """Records a step that reads copies of the leaves and overwrites those of the state."""
        leaves = [x.clone() if isinstance(x, Tensor) else x for x in leaves]
        self._given = tensors(leaves)
        state, inputs = tree_unflatten(leaves, spec)

        def run() -> Any:
            out, after = self._step(state, *inputs)
            overwrite(tensors(state), tensors(after))
            return out

        out, self._replay = record(run, self._given)
        self._results = out, state


def tensors(tree: Any) -> list[Tensor]:
    return [x for x in tree_flatten(tree)[0] if isinstance(x, Tensor)]


def described(x: Any) -> Any:
    """What a graph takes for granted of a leaf."""
    return (x.shape, x.dtype, x.device) if isinstance(x, Tensor) else x


def overwrite(old: list[Tensor], new: list[Tensor]) -> None:
    """Copies tensors to others, some of which may be the same."""
    pairs = [pair for pair in zip(old, new, strict=True) if pair[0] is not pair[1]]
    if not pairs:
        return
    places = {x.untyped_storage().data_ptr() for x in old}
    sources = [x.clone() if x.untyped_storage().data_ptr() in places else x for _, x in pairs]
    torch._foreach_copy_([x for x, _ in pairs], sources)


def record(run: Callable[[], Any], given: list[Tensor]) -> tuple[Any, Callable[[], Any]]:
    """The results of a function that reads `given`, and what computes them again in place.

    The function is recorded and does not run.
    """
    # `torch.cuda.graph` would empty the cache of memory, which takes longer than some steps.
    graph, device = torch.cuda.CUDAGraph(), given[0].device
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    # What autocast keeps of weights ends with its block, which the graph may outlast.
    autocast = torch.autocast(
        device.type, enabled=torch.is_autocast_enabled(device.type), cache_enabled=False
    )
    with torch.cuda.stream(stream), autocast:
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            out = run()
        finally:
            graph.capture_end()
    return out, graph.replay
