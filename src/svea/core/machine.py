"""What this machine, or this container, has: memory, cores, GPUs. Without torch."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from svea.core import process
from svea.core.errors import DeviceError, UserError

ANSWER_SECONDS = 60  # that a program has to say something
HEADROOM = 0.9  # of what is free; the rest is for networks, workers and the system


def available_bytes() -> int | None:
    """Free main memory, within this process's control group; None where it is unknown."""
    found = [_meminfo(), _cgroup()]
    known = [value for value in found if value is not None]
    if known:
        return min(known)
    try:  # macOS: the total, since nothing better is known
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


def usable_cores() -> int:
    """Cores that this process may use: its affinity, and the quota of its container."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    quotas = [_core_quota(group) for group in _control_groups()]
    allowed = min((quota for quota in quotas if quota is not None), default=float(cores))
    return min(cores, max(1, round(allowed)))


def has_nvidia_gpu() -> bool:
    """Whether the kernel drives an NVIDIA GPU, whatever torch or GL think of it."""
    return Path("/proc/driver/nvidia/version").exists() or Path("/dev/nvidiactl").exists()


def activation() -> str:
    """What stands before a command to type where the shell does not find this `svea` yet."""
    script, found = Path(sys.prefix) / "bin/activate", shutil.which("svea")
    if not script.is_file() or (found and Path(found).parent.samefile(script.parent)):
        return ""
    with contextlib.suppress(ValueError):
        script = script.relative_to(Path.cwd())
    return f"`source {shlex.quote(str(script))}`, then "


def answer(command: list[str]) -> subprocess.CompletedProcess[str] | None:
    """What a program prints when it is called; None if it takes longer than it has."""
    try:
        return process.run(command, ANSWER_SECONDS)
    except subprocess.TimeoutExpired:
        return None


def nvidia_gpus() -> list[tuple[str, int]]:
    """Index and free bytes of each NVIDIA GPU that this process may use."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    done = answer([program, "--query-gpu=index,memory.free", "--format=csv,noheader,nounits"])
    if done is None:
        raise DeviceError(
            f"nvidia-smi did not answer in {ANSWER_SECONDS} s: the GPU's driver is stuck. Restart "
            "it, or use --gpus 0"
        )
    found = [line.split(",") for line in done.stdout.splitlines() if line.count(",") == 1]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    allowed = None if visible is None else visible.split(",")
    return [
        (index.strip(), int(free) * 2**20)
        for index, free in found
        if free.strip().isdigit() and (allowed is None or index.strip() in allowed)
    ]


def _meminfo() -> int | None:
    """Linux: memory that can be had without swapping."""
    path = Path("/proc/meminfo")
    if not path.exists():
        return None
    lines = dict(line.split(":") for line in path.read_text().splitlines())
    return int(lines["MemAvailable"].split()[0]) * 1024


def _control_groups(prefix: str = "0::", below: str = "") -> list[Path]:
    """Linux containers: the control group of this process and those above it.

    Args:
        prefix: Of its line: version 2; of version 1 each controller has a line of its own.
        below: The controller's folder in version 1.
    """
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    named = (line.partition(prefix)[2] for line in lines if prefix in line)
    root = Path("/sys/fs/cgroup") / below
    own = root / next(named, "").lstrip("/")
    return [group for group in (own, *own.parents) if group.is_relative_to(root)]


def _cgroup() -> int | None:
    """Memory that every control group still allows."""
    allowed = [_allowed(group) for group in _control_groups()]
    names = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
    allowed += [_allowed(group, *names) for group in _control_groups(":memory:", "memory")]
    return min((value for value in allowed if value is not None), default=None)


def _core_quota(group: Path) -> float | None:
    """Cores that one control group allows; None where it sets no limit."""
    try:
        quota, period = (group / "cpu.max").read_text().split()
        return int(quota) / int(period)
    except (OSError, ValueError):  # no such group, or "max"
        return None


def _allowed(
    group: Path,
    most: str = "memory.max",
    current: str = "memory.current",
    cached: str = "inactive_file",
) -> int | None:
    """What one control group still allows; None where it sets no limit.

    The kernel counts cached files as used, but gives them up before it refuses memory: what has not
    been read lately (`inactive_file`) is as good as free.
    """
    try:
        limit = int((group / most).read_text())
        used = int((group / current).read_text())
        stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):  # no such group, or "max"
        return None
    return limit - used + int(stat.get(cached, 0))
