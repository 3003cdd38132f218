"""The controls of a stack of layers, which layers may share."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import nn

from fairseq_memattn.attention.controls import Control, ControlOptions, Shared, Sizes, control_class
from fairseq_memattn.attention.nn.carried import CarriedMemories


class ForwardScope(threading.local):
    """What the layers of a pool share in a forward pass; outside of it both are None.

    Each thread has its own values, so that several can compute with one model. A copy is empty.

    carried: the memories of earlier sentences, in a pass over sentences of documents
    """

    def __init__(self) -> None:
        self.shared: Shared | None = None
        self.carried: CarriedMemories | None = None

    def __reduce__(self) -> tuple[Callable[[], "ForwardScope"], tuple[()]]:
        return ForwardScope, ()


class LayerControl:
    """A layer's reference to a control, which the `ControlPool` of the model owns.

    It is not a module, so that a layer that has it does not register and save the control again.

    layer: number of the layer, from 0
    """

    def __init__(self, control: Control, layer: int, scope: ForwardScope) -> None:
        self.control, self.layer, self.scope = control, layer, scope

    @property
    def shared(self) -> Shared | None:
        """The values that the current forward pass shares with this layer, or None."""
        shared = self.scope.shared
        return None if shared is None else shared.for_layer(self.layer)

    @property
    def carried(self) -> CarriedMemories | None:
        """The memories that the current forward pass carries from sentence to sentence."""
        return self.scope.carried


@dataclass(frozen=True)
class ControlSpec:
    """What makes a control.

    name: name of a registered control
    """

    name: str
    sizes: Sizes
    options: ControlOptions


class ControlPool(nn.ModuleList):
    """The controls of a stack of layers: one for all layers with the same spec, or one for each.

    The paper ties phi over the layers (section 4). The pool owns the controls and the layers refer
    to them, so that a tied control is one entry in the checkpoint and in the optimiser.

    specs: of the layers, the lowest first, beginning again after the last one; None is a layer
        with softmax attention
    tied: whether layers with the same spec share one control, if the control allows it
    """

    def __init__(self, specs: Sequence[ControlSpec | None], *, tied: bool) -> None:
        super().__init__()
        self.specs, self.tied = tuple(specs), tied
        self.scope = ForwardScope()
        self.places: list[int | None] = []  # of the control of each layer in the pool
        self.shared: dict[ControlSpec, int] = {}

    @property
    def spec(self) -> ControlSpec | None:
        """The spec of all layers; None if layers differ."""
        return self.specs[0] if len(set(self.specs)) == 1 else None

    @property
    def has_softmax(self) -> bool:
        """Whether there are layers with softmax attention."""
        return None in self.specs

    def for_next_layer(self) -> LayerControl | None:
        """The control of the next layer. The first call is for the lowest layer."""
        layer = len(self.places)
        spec = self.specs[layer % len(self.specs)]
        self.places.append(None if spec is None else self._place(spec))
        return self.for_layer(layer)

    def for_layer(self, layer: int) -> LayerControl | None:
        """The control of a layer, by its number from 0, which `for_next_layer` has made."""
        place = self.places[layer]
        if place is None:
            return None
        control = self[place]
        assert isinstance(control, Control)
        return LayerControl(control, layer, self.scope)

    def _place(self, spec: ControlSpec) -> int:
        """The place of the control of the next layer, which is made if no layer has made it."""
        if spec in self.shared:
            return self.shared[spec]
        make, place = control_class(spec.name), len(self)
        self.append(make(spec.sizes, spec.options.for_layer(place)))
        if self.tied and make.can_tie:
            self.shared[spec] = place
        return place

    def limit(self, positions: int) -> int:
        """The smaller of `positions` and the maximum length of the controls."""
        controls = (control for control in self if isinstance(control, Control))
        return min([positions, *(control.max_length or positions for control in controls)])

    @contextmanager
    def forward_pass(self) -> Iterator[None]:
        """A context in which the layers share values."""
        self.scope.shared = Shared()
        try:
            yield
        finally:
            self.scope.shared = None

    @contextmanager
    def carrying(self, carried: CarriedMemories) -> Iterator[None]:
        """A context in which the layers attend to earlier sentences."""
        self.scope.carried = carried
        try:
            yield
        finally:
            self.scope.carried = None


def insert_pools(stack: Any, pools: dict[str, ControlPool | None]) -> None:
    """Registers the pools of a stack directly after its layers.

    Optimiser states number parameters in the order in which modules are registered, and existing
    checkpoints have the pools at this place.
    """
    names = [name for name, _ in stack.named_children()]
    following = {name: getattr(stack, name) for name in names[names.index("layers") + 1 :]}
    for name in following:
        delattr(stack, name)
    for name, module in (pools | following).items():
        setattr(stack, name, module)
