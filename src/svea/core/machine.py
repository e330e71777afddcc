"""What this machine, or this container, has: memory, cores, GPUs. Without torch."""

import os
import re
import shutil
from pathlib import Path

from svea.core import process
from svea.core.errors import DeviceError, UserError

ANSWER_SECONDS = 60  # that a program has to say something
HEADROOM = 0.9  # of what is free; the rest is for networks, workers and the system


def available_bytes() -> int | None:
    """Free main memory, within this process's control groups; None where it is unknown."""
    names = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
    found = [_meminfo(), *map(_allowed, _control_groups())]
    found += [_allowed(group, *names) for group in _control_groups(":memory:", "memory")]
    return min((value for value in found if value is not None), default=None)


def require(needed: int, available: int | None, purpose: str, cure: str) -> None:
    """Refuse, with the numbers, what cannot fit."""
    if available is not None and needed > HEADROOM * available:
        raise UserError(
            f"{purpose} needs {needed / 1e9:.2f} GB, but only {available / 1e9:.2f} GB are "
            f"available (of which {HEADROOM:.0%} may be used). {cure}"
        )


def usable_cores() -> int:
    """Cores that this process may use: its affinity, and the quota of its container."""
    is_linux = hasattr(os, "sched_getaffinity")
    cores = len(os.sched_getaffinity(0)) if is_linux else os.cpu_count() or 1
    quotas = (_core_quota(group) for group in _control_groups())
    allowed = min((quota for quota in quotas if quota is not None), default=cores)
    return min(cores, max(1, round(allowed)))


def has_nvidia_gpu() -> bool:
    """Whether the kernel drives an NVIDIA GPU, whatever torch or GL think of it."""
    return Path("/proc/driver/nvidia/version").exists() or Path("/dev/nvidiactl").exists()


def nvidia_gpus() -> list[tuple[str, int]]:
    """Index and free bytes of each NVIDIA GPU that this process may use."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    asked = [program, "--query-gpu=index,memory.free", "--format=csv,noheader,nounits"]
    done = process.run(asked, ANSWER_SECONDS)
    if done is None:
        raise DeviceError(
            f"nvidia-smi did not answer in {ANSWER_SECONDS} s: the GPU's driver is stuck. Restart "
            "it, or use --gpus 0"
        )
    found = dict(re.findall(r"^\s*(\S+?)\s*,\s*(\d+)\s*$", done.stdout, re.M))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(found)).split(",")
    return [(index, int(free) * 2**20) for index, free in found.items() if index in visible]


def _meminfo() -> int | None:
    """Memory that can be had without swapping; where that is not known (macOS), all of it."""
    try:
        lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        return int(lines["MemAvailable"].split()[0]) * 1024
    except OSError:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _control_groups(prefix: str = "0::", below: str = "") -> list[Path]:
    """Linux containers: the control group of this process and those above it.

    Version 1 has a line, found by its prefix, and a folder for each controller.
    """
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    named = (line.partition(prefix)[2] for line in lines if prefix in line)
    root = Path("/sys/fs/cgroup") / below
    own = root / next(named, "").lstrip("/")
    return [group for group in (own, *own.parents) if group.is_relative_to(root)]


def _core_quota(group: Path) -> float | None:
    """Cores that one control group allows; None where it sets no limit."""
    try:
        quota, period = (group / "cpu.max").read_text().split()
        return int(quota) / int(period)
    except (OSError, ValueError):  # no such group, or "max"
        return None


def _allowed(
    group: Path, most: str = "memory.max", used: str = "memory.current", idle: str = "inactive_file"
) -> int | None:
    """Memory that one control group still allows; None where it sets no limit.

    The kernel counts cached files as used, but gives them up before it refuses memory: what has not
    been read lately (`inactive_file`) is as good as free.
    """
    try:
        limit, taken = (int((group / name).read_text()) for name in (most, used))
        stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):  # no such group, or "max"
        return None
    return limit - taken + int(stat.get(idle, 0))
