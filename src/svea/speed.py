"""Where and how fast: device, precision and memory, applied around the update from outside."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import torch

from svea.errors import UserError

if TYPE_CHECKING:
    from svea.agents.sac import SAC


def choose_device(name: str) -> torch.device:
    """The device for ``auto``, ``cuda``, ``mps`` or ``cpu``; an absent one is an error."""
    available = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    if name == "auto":
        name = next(device for device, there in available.items() if there)
    if not available.get(name, False):
        there = ", ".join(device for device, found in available.items() if found)
        raise UserError(f"device {name} is not available; allowed here: auto, {there}")
    return torch.device(name)


def choose_precision(name: str, device: torch.device) -> torch.dtype:
    """bfloat16 on GPUs that multiply it natively (``auto``), float32 elsewhere, or as asked for.

    On CPUs float32 is as fast at the sizes one trains there, and some virtual machines announce
    bfloat16 tiles (AMX) that they do not have: so it must be asked for, and is tried first.
    """
    if name == "float32":
        return torch.float32
    if device.type == "cpu" and name == "bfloat16" and not cpu_computes_bfloat16():
        raise UserError(
            "precision is bfloat16, but this CPU fails to multiply in it. Use --precision float32, "
            "or set the variable ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 if it announces AMX without "
            "having it"
        )
    if name == "bfloat16":
        return torch.bfloat16
    native = device.type == "cuda" and torch.cuda.is_bf16_supported()
    return torch.bfloat16 if native else torch.float32


def cpu_computes_bfloat16() -> bool:
    """Try a bfloat16 product in a child process: a bad one ends in an illegal instruction."""
    trial = (
        "import torch; x = torch.ones(64, 64, dtype=torch.bfloat16); "
        "assert bool(((x @ x) == 64).all())"
    )
    done = subprocess.run([sys.executable, "-c", trial], capture_output=True, check=False)
    return done.returncode == 0


def precision_context(
    device: torch.device, precision: torch.dtype
) -> contextlib.AbstractContextManager[object]:
    """The region in which updates and actions are computed."""
    if precision == torch.float32:
        return contextlib.nullcontext()
    return torch.autocast(device.type, dtype=precision)


def prepare(agent: SAC) -> None:
    """Make ready what speeds up every update without changing it."""
    if agent.device.type == "cuda":
        for network in (agent.trunk, agent.target_trunk):
            for weight in network.parameters():
                if weight.ndim == 4:  # convolutions: the tensor cores' own layout
                    weight.data = weight.data.to(memory_format=torch.channels_last)
    if agent.device.type == "cpu":
        keep_freed_memory()
        leave_a_core()


def keep_freed_memory() -> None:
    """Let the C library keep the memory of freed tensors for the next ones.

    By default glibc gives large blocks back at once, and every update pays for fresh pages: about
    a sixth of its time at 40 pixels and batch 128, in noisy runs.
    """
    if sys.platform != "linux":
        return
    trim_threshold, map_threshold = -1, -3  # <malloc.h>
    with contextlib.suppress(AttributeError):  # not glibc
        library = ctypes.CDLL(None)
        library.mallopt(map_threshold, 1 << 29)
        library.mallopt(trim_threshold, (1 << 31) - 1)


def leave_a_core() -> None:
    """Leave one core to the environments, unless OMP_NUM_THREADS says how many threads to take.

    All threads wait for the slowest one many times in every update. On 2 cores, with anything else
    at work, two threads took 1.2 to 2.0 times as long as one (docs/demo.md).
    """
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, available_cores() - 1))


def available_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # Linux: respects taskset and containers
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
