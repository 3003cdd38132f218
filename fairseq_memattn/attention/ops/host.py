"""What Python code may know of tensors on a GPU without waiting for it.

Operations on a GPU are queued, and reading a number back waits until the queue is empty.
"""

import torch
from torch import Tensor

# Devices that compute at once, so that reading a number costs nothing.
IMMEDIATE = {"cpu"}


def is_immediate(x: Tensor) -> bool:
    """Whether the numbers of x can be read without waiting; never while a graph is exported."""
    return x.device.type in IMMEDIATE and not torch.compiler.is_exporting()


def possibly_any(condition: Tensor) -> bool:
    """Whether any entry is True. On a GPU, and in `torch.export`, the answer is yes, unread."""
    return not is_immediate(condition) or bool(condition.any())


def on_device(x: Tensor, device: torch.device) -> Tensor:
    """x, which is on the CPU, on another device, to which it is copied without waiting."""
    if device.type == "cuda" and not torch.compiler.is_compiling():  # which cannot pin memory
        x = x.pin_memory()
    return x.to(device, non_blocking=True)
