"""How much memory there is, before a run asks for it."""

from __future__ import annotations

import os
from pathlib import Path

from svea.errors import UserError

HEADROOM = 0.9  # of what is free; the rest is for networks, workers and the system


def available_bytes() -> int | None:
    """Free main memory, within this process's control group; None where nobody tells."""
    found = [_meminfo(), _cgroup()]
    known = [value for value in found if value is not None]
    if known:
        return min(known)
    try:  # macOS: total, for want of better
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None


def require(needed: int, available: int | None, purpose: str, cure: str) -> None:
    """Refuse, with the numbers, what cannot fit."""
    if available is not None and needed > HEADROOM * available:
        raise UserError(
            f"{purpose} needs {needed / 1e9:.2f} GB, but only {available / 1e9:.2f} GB are "
            f"available (of which {HEADROOM:.0%} may be used). {cure}"
        )


def _meminfo() -> int | None:
    """Linux: memory that can be had without swapping."""
    path = Path("/proc/meminfo")
    if not path.exists():
        return None
    lines = dict(line.split(":") for line in path.read_text().splitlines())
    return int(lines["MemAvailable"].split()[0]) * 1024


def _cgroup() -> int | None:
    """Linux containers: what the control group still allows."""
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    try:
        return int(limit.read_text()) - int(used.read_text())
    except (OSError, ValueError):  # no control group, or "max"
        return None
