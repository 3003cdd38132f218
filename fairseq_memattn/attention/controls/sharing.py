"""What the layers of a model share within one forward pass."""

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

T = TypeVar("T")


class Shared:
    """Values that one layer computes and other layers of the same forward pass use.

    A program makes one for each forward pass, gives it to every layer, and drops it afterwards.

    layer: the number of the layer that uses the values, from 0
    """

    def __init__(self, layer: int = 0, values: dict[Hashable, Any] | None = None) -> None:
        self.layer = layer
        self.values: dict[Hashable, Any] = {} if values is None else values

    def for_layer(self, layer: int) -> "Shared":
        """The same values as the layer with this number uses them."""
        return Shared(layer, self.values)

    def once(self, owner: Hashable, source: object, make: Callable[[], T]) -> T:
        """What `make` returned when an owner first asked for the same source."""
        known, value = self.values.get(owner, (None, None))
        if known is source:
            return value  # type: ignore[no-any-return]
        made = make()
        self.values[owner] = (source, made)
        return made
