"""The host's part of Triton kernels without a GPU: they are compiled, and nothing runs them.

In a block of `stubbed_launches`, Triton takes tensors on the CPU for those of a GPU. It looks at
the arguments of a launch, finds or compiles the kernel and calls the launcher, which does nothing.
The values of tensors are of no use.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from unittest import mock

import torch
import triton
from triton.backends.compiler import GPUTarget

CAPABILITY = 90  # of the GPU for which kernels are compiled, an H100
SHARED_MEMORY = 232448  # bytes that one program of it can have


class Launcher:
    """What gives a compiled kernel with its arguments to the driver of a GPU."""

    count = 0

    def __init__(self, src: object, metadata: object) -> None:
        pass

    def __call__(self, *args: object) -> None:
        Launcher.count += 1


class Driver:
    """Triton's view of a machine: a device 0 with a stream 0."""

    launcher_cls = Launcher
    utils = SimpleNamespace(
        get_device_properties=lambda device: {"max_shared_mem": SHARED_MEMORY},
        load_binary=lambda *args: (1, 1, 64, 0, 1024),  # module, function, registers, spills, most
        unload_module=lambda module: None,
    )

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", CAPABILITY, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


@contextmanager
def stubbed_launches() -> Iterator[None]:
    properties = SimpleNamespace(major=CAPABILITY // 10, minor=CAPABILITY % 10)
    triton.runtime.driver.set_active(Driver())
    with (
        mock.patch.object(torch.Tensor, "is_cuda", True),
        mock.patch.object(torch.cuda, "get_device_properties", lambda *_: properties),
        mock.patch.object(torch.cuda, "get_device_capability", lambda *_: (9, 0)),
        mock.patch.object(torch.cuda, "current_device", lambda: 0),
        mock.patch.object(torch._C, "_cuda_getCurrentRawStream", lambda device: 0, create=True),
    ):
        yield
