"""Attention by locality-sensitive hashing beside a global memory (GMAT paper, section 3.1)."""

from fairseq_memattn.attention.ops.lsh.chunked import lsh_buckets, lsh_memory_attention

__all__ = ["lsh_buckets", "lsh_memory_attention"]
