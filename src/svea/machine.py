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
    """Linux containers: what the control group of this process, and those above it, still allow."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    own = next((line[3:] for line in lines if line.startswith("0::")), "/").lstrip("/")
    root = Path("/sys/fs/cgroup")
    groups = [root / own, *(root / own).parents]
    allowed = [_allowed(group) for group in groups if group.is_relative_to(root)]
    return min((value for value in allowed if value is not None), default=None)


def _allowed(group: Path) -> int | None:
    """What one control group still allows; None where it sets no limit.

    The kernel counts cached files as used, but gives them up before it refuses memory: what has not
    been read lately (`inactive_file`) is as good as free.
    """
    try:
        limit = int((group / "memory.max").read_text())
        used = int((group / "memory.current").read_text())
        stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):  # no such group, or "max"
        return None
    return limit - used + int(stat.get("inactive_file", 0))
