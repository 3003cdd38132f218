"""Attention within hash buckets beside a global memory (GMAT paper, section 2)."""

from fairseq_memattn.attention.ops.lsh.chunked import lsh_buckets, lsh_memory_attention

__all__ = ["lsh_buckets", "lsh_memory_attention"]
