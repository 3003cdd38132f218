"""Sliding, dilated and strided windows (ABC paper, section 3.3 and appendix A.4)."""

from fairseq_memattn.attention.ops.window.chunked import (
    Window,
    WindowState,
    window_attention,
    window_read,
    window_step,
    window_write,
)

__all__ = [
    "Window",
    "WindowState",
    "window_attention",
    "window_read",
    "window_step",
    "window_write",
]
