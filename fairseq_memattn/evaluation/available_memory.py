"""How much memory a process can still take."""

from pathlib import Path

MEMINFO = Path("/proc/meminfo")
LIMIT = Path("/sys/fs/cgroup/memory.max")  # of a container


def available_memory() -> int | None:
    """Bytes of memory, of the machine or of the container; None where Linux does not say it."""
    try:
        text = MEMINFO.read_text()
        lines = dict(line.split(":", 1) for line in text.splitlines())
        found = 1024 * int(lines["MemAvailable"].split()[0])
    except (OSError, KeyError, ValueError):
        return None
    try:
        return min(found, int(LIMIT.read_text()))
    except (OSError, ValueError):  # no limit
        return found


def check_memory(needed: float, message: str) -> None:
    """Raises ValueError for more bytes than there are. message: with {} for both sizes"""
    available = available_memory()
    if available is not None and needed > available:
        sizes = (f"{size / 1e9:.1f} GB" for size in (needed, available))
        raise ValueError(message.format(*sizes))
