"""Where and how fast: device, precision and memory format, applied around the update from outside."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from svea.errors import UserError

if TYPE_CHECKING:
    from svea.agents.sac import SAC


def choose_device(name: str) -> torch.device:
    """The device for ``auto``, ``cuda``, ``mps`` or ``cpu``; an absent one is an error."""
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        name = next(device for device, there in available.items() if there)
    if not available.get(name, False):
        there = ", ".join(device for device, found in available.items() if found)
        raise UserError(f"device {name} is not available; allowed here: auto, {there}")
    return torch.device(name)


def choose_precision(name: str, device: torch.device) -> torch.dtype:
    """bfloat16 where the hardware multiplies it natively (``auto``), or what was asked for."""
    if name == "float32":
        return torch.float32
    if name == "bfloat16":
        return torch.bfloat16
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float32
    if device.type == "cpu":
        return torch.bfloat16 if cpu_multiplies_bfloat16() else torch.float32
    return torch.float32


def cpu_multiplies_bfloat16() -> bool:
    """Whether the CPU has matrix tiles for bfloat16 (AMX); emulation would be slower than float32."""
    flags = Path("/proc/cpuinfo")
    return flags.exists() and "amx_bf16" in flags.read_text()


def precision_context(
    device: torch.device, precision: torch.dtype
) -> contextlib.AbstractContextManager[object]:
    """The region in which updates and actions are computed."""
    if precision == torch.float32:
        return contextlib.nullcontext()
    return torch.autocast(device.type, dtype=precision)


def prepare(agent: SAC) -> None:
    """Lay convolution weights out channels-last: the fast format for bf16 on CPU and GPU."""
    for network in (agent.trunk, agent.target_trunk):
        network.to(memory_format=torch.channels_last)
