"""Kernel (linear) attention, with an optional gate."""

from fairseq_memattn.attention.ops.kernel.chunked import (
    KernelState,
    kernel_attention,
    kernel_read,
    kernel_step,
    kernel_write,
)

__all__ = ["KernelState", "kernel_attention", "kernel_read", "kernel_step", "kernel_write"]
