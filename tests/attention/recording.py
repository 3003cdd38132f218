"""What the host does around the kernels: the operations it calls, and the memory it allocates."""

from typing import Any

from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

# What waits for the device.
READS = {"_local_scalar_dense", "item", "nonzero", "is_nonzero", "equal", "masked_select", "unique"}


class Recorder(TorchDispatchMode):
    """Sees what runs under it, the inside of the operators of kernels included.

    calls: the names of the operations, in their order
    peak: the most bytes that were allocated at a time, without those that were there before
    """

    def __init__(self) -> None:
        super().__init__()
        from fairseq_memattn.attention.ops.abc.triton import decoding, operators

        made = [operators.abc_causal, operators.abc_causal_backward]
        made += [decoding.abc_step, decoding.abc_step_]
        self._bodies = {op._opoverload: op._init_fn for op in made}
        self.calls: list[str] = []
        self.peak = 0
        self._alive: dict[int, tuple[StorageWeakRef, int]] = {}

    @property
    def allocated(self) -> int:
        """Bytes of what was allocated under the recorder and is still there."""
        alive = {key: ref for key, ref in self._alive.items() if not ref[0].expired()}
        self._alive = alive
        return sum(nbytes for _, nbytes in alive.values())

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        self.calls.append(func.overloadpacket.__name__)
        if func in self._bodies:
            with self:
                return self._bodies[func](*args, **(kwargs or {}))
        given = {id(x.untyped_storage()) for x in args if isinstance(x, Tensor)}
        out = func(*args, **(kwargs or {}))
        for x in out if isinstance(out, tuple | list) else (out,):
            if isinstance(x, Tensor) and id(x.untyped_storage()) not in given:
                storage = x.untyped_storage()
                self._alive[id(storage)] = (StorageWeakRef(storage), storage.nbytes())
        self.peak = max(self.peak, self.allocated)
        return out
