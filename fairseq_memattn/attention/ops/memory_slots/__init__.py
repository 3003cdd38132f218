"""T5Mem's MemAttention: sequences with memory slots (T5Mem paper, section 3)."""

from fairseq_memattn.attention.ops.memory_slots.attention import mem_attention

__all__ = ["mem_attention"]
