"""Which layers share a control, and what they share within a forward pass."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from fairseq_memattn.attention.controls import Control, ControlOptions, Shared, Sizes, control_class


class ForwardScope:
    """What the layers of a pool share while a forward pass runs; None at any other time."""

    def __init__(self) -> None:
        self.shared: Shared | None = None


class LayerControl:
    """A control as one layer uses it. The `ControlPool` of the model owns the control.

    No module: a layer that refers to it neither registers nor saves the control once more.
    """

    def __init__(self, control: Control, layer: int, scope: ForwardScope) -> None:
        self.control, self.layer, self.scope = control, layer, scope

    @property
    def shared(self) -> Shared | None:
        """What the forward pass that is running shares with this layer."""
        shared = self.scope.shared
        return None if shared is None else shared.for_layer(self.layer)


class ControlPool(nn.ModuleList):
    """The controls of a stack of layers: one for all of them, or one for each.

    The paper ties phi over the layers (section 4). The pool owns the controls and the layers refer
    to them, so that a tied control is one entry in the checkpoint and in the optimiser.

    name: of a registered control
    """

    def __init__(self, name: str, sizes: Sizes, options: ControlOptions, *, tied: bool) -> None:
        super().__init__()
        self.make, self.sizes, self.options = control_class(name), sizes, options
        self.tied = tied and self.make.can_tie
        self.scope = ForwardScope()
        self.layers = 0

    def for_next_layer(self) -> LayerControl:
        """The control of one layer more, the lowest layer first."""
        if not self.tied or len(self) == 0:
            self.append(self.make(self.sizes, self.options.for_layer(len(self))))
        control = self[-1]
        assert isinstance(control, Control)
        self.layers += 1
        return LayerControl(control, self.layers - 1, self.scope)

    def limit(self, positions: int) -> int:
        """The positions that both a model of `positions` and its controls can tell apart."""
        controls = (control for control in self if isinstance(control, Control))
        return min([positions, *(control.max_length or positions for control in controls)])

    @contextmanager
    def forward_pass(self) -> Iterator[None]:
        """Lets the layers share values until the forward pass ends."""
        self.scope.shared = Shared()
        try:
            yield
        finally:
            self.scope.shared = None


def insert_pools(stack: Any, pools: dict[str, ControlPool | None]) -> None:
    """Registers the pools of a finished stack right behind its layers.

    This is the place of the pools in the optimiser states of existing checkpoints, which number
    parameters in the order in which modules are registered.
    """
    names = [name for name, _ in stack.named_children()]
    behind = {name: getattr(stack, name) for name in names[names.index("layers") + 1 :]}
    for name in behind:
        delattr(stack, name)
    for name, module in (pools | behind).items():
        setattr(stack, name, module)
