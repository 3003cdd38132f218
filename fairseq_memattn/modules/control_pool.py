"""Which layers share a control."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from torch import Tensor, nn

from fairseq_memattn.attention.controls import CONTROLS, RIVALS, Control, ControlOptions
from fairseq_memattn.attention.controls.mlp import MLPControl
from fairseq_memattn.errors import MemAttnError


class ControlPool(nn.ModuleList):
    """Hands every layer its control: always the same one, or each its own.

    The paper ties phi over the layers (section 4). The pool owns the controls and the layers
    only refer to them, so a tied one is one entry in the checkpoint and in the optimiser.

    name: a key of `attention.controls.CONTROLS` or `RIVALS`
    """

    def __init__(self, name: str, options: ControlOptions, *, tied: bool) -> None:
        super().__init__()
        self.make, self.options = (CONTROLS | RIVALS)[name], options
        self.tied = tied and self.make.tied
        self.layers = 0
        self.below: dict[int, Tensor] = {}

    def for_next_layer(self) -> Control:
        if not self.tied or len(self) == 0:
            seed = self.options.seed + len(self)
            self.append(self.make(replace(self.options, seed=seed)))
        control = self[-1]
        assert isinstance(control, Control)
        self.layers += 1
        return control.for_layer(self.layers - 1, self.below)

    def limit(self, positions: int) -> int:
        """The positions that both a model of `positions` and its controls can tell apart."""
        limits = [getattr(control, "max_length", None) or positions for control in self]
        return min([positions, *limits])

    @contextmanager
    def one_source(self) -> Iterator[None]:
        """While all layers read one and the same source, a tied control looks at it once."""
        controls = [control for control in self if isinstance(control, MLPControl)]
        for control in controls:
            control.keeps = True
        try:
            yield
        finally:
            for control in controls:
                control.keeps, control.kept = False, None


def global_positions(listed: str) -> tuple[int, ...]:
    """`--abc-global-positions`, in order. Raises MemAttnError where it is no list of positions."""
    words = [word for word in listed.split(",") if word.strip()]
    if not all(word.strip().isdecimal() for word in words):
        raise MemAttnError(
            "--abc-global-positions must be positions from 0 with commas between them, "
            f"but is {listed!r}"
        )
    return tuple(sorted({int(word) for word in words}))
