"""T5Mem's sequence selector, and cross attention to what it selects (equations 1 to 5)."""

from fairseq_memattn.attention.ops.mixture.attention import (
    MixtureState,
    SelectorState,
    mixture_attention,
    mixture_read,
    mixture_write,
    select_sequences,
)

__all__ = [
    "MixtureState",
    "SelectorState",
    "mixture_attention",
    "mixture_read",
    "mixture_write",
    "select_sequences",
]
