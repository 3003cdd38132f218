"""GMAT's attention in chunks and windows with a global memory (GMAT paper, section 2)."""

from fairseq_memattn.attention.ops.global_memory.chunked import (
    global_memory_attention,
    window_memory_attention,
)

__all__ = ["global_memory_attention", "window_memory_attention"]
