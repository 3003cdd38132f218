"""Attention over a bounded memory, in pure PyTorch: no fairseq, no configuration objects.

One letter names each axis, here and everywhere else:

    B  batch            T  target length (queries)     D  head size
    H  heads            S  source length (keys)        M  memory slots
    E  model size       C  chunk length                L  number of chunks
    F  features of kernel attention
"""

from fairseq_memattn.attention.additive import (
    additive_attention,
    additive_step,
    additive_write,
)
from fairseq_memattn.attention.bounded_memory import abc_attention, abc_read, abc_step, abc_write
from fairseq_memattn.attention.kernel_attention import (
    KernelState,
    kernel_attention,
    kernel_read,
    kernel_step,
    kernel_write,
)
from fairseq_memattn.attention.state import MemoryState
from fairseq_memattn.attention.window import (
    Window,
    WindowState,
    window_attention,
    window_read,
    window_step,
    window_write,
)

__all__ = [
    "KernelState",
    "MemoryState",
    "Window",
    "WindowState",
    "abc_attention",
    "abc_read",
    "abc_step",
    "abc_write",
    "additive_attention",
    "additive_step",
    "additive_write",
    "kernel_attention",
    "kernel_read",
    "kernel_step",
    "kernel_write",
    "window_attention",
    "window_read",
    "window_step",
    "window_write",
]
