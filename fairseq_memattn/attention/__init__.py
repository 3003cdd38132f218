"""Attention over a bounded memory, in pure PyTorch: no fairseq, no configuration objects.

One letter names each axis, here and everywhere else:

    B  batch            T  target length (queries)     D  head size
    H  heads            S  source length (keys)        M  memory slots
    E  model size       C  chunk length                L  number of chunks
    F  features of kernel attention
    K  sequences in an input, each with a slot of M memory tokens (T5Mem)
"""

from fairseq_memattn.attention.ops.abc import abc_attention, abc_read, abc_step, abc_write
from fairseq_memattn.attention.ops.additive import additive_attention, additive_step, additive_write
from fairseq_memattn.attention.ops.common import MemoryState, chosen_backend, use_backend
from fairseq_memattn.attention.ops.global_memory.chunked import (
    global_memory_attention,
    window_memory_attention,
)
from fairseq_memattn.attention.ops.kernel.chunked import (
    KernelState,
    kernel_attention,
    kernel_read,
    kernel_step,
    kernel_write,
)
from fairseq_memattn.attention.ops.key_values import concatenate_rows
from fairseq_memattn.attention.ops.lsh.chunked import lsh_buckets, lsh_memory_attention
from fairseq_memattn.attention.ops.memory_slots import mem_attention
from fairseq_memattn.attention.ops.mixture import (
    MixtureState,
    SelectorState,
    mixture_attention,
    mixture_read,
    mixture_write,
    select_sequences,
)
from fairseq_memattn.attention.ops.relative_position import (
    position_bias,
    relative_position_bucket,
    slot_position_bias,
)
from fairseq_memattn.attention.ops.window import (
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
    "MixtureState",
    "SelectorState",
    "Window",
    "WindowState",
    "abc_attention",
    "abc_read",
    "abc_step",
    "abc_write",
    "additive_attention",
    "additive_step",
    "additive_write",
    "chosen_backend",
    "concatenate_rows",
    "global_memory_attention",
    "kernel_attention",
    "kernel_read",
    "kernel_step",
    "kernel_write",
    "lsh_buckets",
    "lsh_memory_attention",
    "mem_attention",
    "mixture_attention",
    "mixture_read",
    "mixture_write",
    "position_bias",
    "relative_position_bucket",
    "select_sequences",
    "slot_position_bias",
    "use_backend",
    "window_attention",
    "window_memory_attention",
    "window_read",
    "window_step",
    "window_write",
]
