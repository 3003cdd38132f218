"""Attention over a bounded memory, in pure PyTorch: no fairseq, no configuration objects.

One letter names each axis, here and everywhere else:

    B  batch            T  target length (queries)     D  head size
    H  heads            S  source length (keys)        M  memory slots
    E  model size       C  chunk length                L  number of chunks
"""

from fairseq_memattn.attention.bounded_memory import abc_attention, abc_read, abc_step, abc_write
from fairseq_memattn.attention.state import MemoryState

__all__ = ["MemoryState", "abc_attention", "abc_read", "abc_step", "abc_write"]
