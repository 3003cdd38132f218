"""The controls of a stack of layers, which layers may share."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from fairseq_memattn.attention.controls import Control, ControlOptions, Shared, Sizes, control_class
from fairseq_memattn.attention.nn.carried import CarriedMemories


class ForwardScope:
    """What the layers of a pool share in a forward pass; outside of it both are None.

    carried: the memories of earlier sentences, in a pass over sentences of documents
    """

    def __init__(self) -> None:
        self.shared: Shared | None = None
        self.carried: CarriedMemories | None = None


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


class ControlPool(nn.ModuleList):
    """The controls of a stack of layers: one for all of them, or one for each.

    The paper ties phi over the layers (section 4). The pool owns the controls and the layers refer
    to them, so that a tied control is one entry in the checkpoint and in the optimiser.

    name: name of a registered control
    tied: whether the layers share one control, if the control allows it
    """

    def __init__(self, name: str, sizes: Sizes, options: ControlOptions, *, tied: bool) -> None:
        super().__init__()
        self.make, self.sizes, self.options = control_class(name), sizes, options
        self.tied = tied and self.make.can_tie
        self.scope = ForwardScope()
        self.layers = 0

    def for_next_layer(self) -> LayerControl:
        """The control of the next layer. The first call is for the lowest layer."""
        if not self.tied or len(self) == 0:
            self.append(self.make(self.sizes, self.options.for_layer(len(self))))
        control = self[-1]
        assert isinstance(control, Control)
        self.layers += 1
        return LayerControl(control, self.layers - 1, self.scope)

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
