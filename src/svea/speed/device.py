"""Where and how exactly to compute: device, precision, way of updating, determinism."""

from __future__ import annotations

import contextlib
import os
import shutil
import warnings
from collections.abc import Iterator
from types import ModuleType

import torch

from svea.core.errors import DeviceError, UserError, unknown_name

SPEEDS = ("eager", "compiled", "captured")
EXACT = "float32-exact"
"""float32 whose products are float32, too; on a GPU plain float32 multiplies in TF32."""
PRECISIONS = ("auto", "float32", EXACT, "bfloat16")


NO_KERNELS = "svea.kernels, the kernels in C and CUDA, is not there; install svea again to have it"


def wing() -> ModuleType | None:
    """Our own kernels, or none where their folder is missing; nothing else imports them."""
    try:
        from svea import kernels
    except ImportError:
        return None
    # Python also imports a folder that holds no more than what it once compiled.
    return kernels if hasattr(kernels, "accelerate") else None


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
    """bfloat16 on GPUs that multiply it natively (``auto``), float32 elsewhere, or as asked for."""
    if name not in PRECISIONS:
        raise unknown_name("precision", name, PRECISIONS)
    if name in ("float32", EXACT):
        return torch.float32
    if device.type == "cpu" and name == "bfloat16":
        raise UserError(
            "precision is bfloat16, which is for GPUs; on a CPU use --precision auto or float32"
        )
    if name == "bfloat16":
        return torch.bfloat16
    native = device.type == "cuda" and torch.cuda.is_bf16_supported()
    return torch.bfloat16 if native else torch.float32


def precision_context(
    device: torch.device, precision: torch.dtype
) -> contextlib.AbstractContextManager[object]:
    """The region in which updates and actions are computed."""
    if precision == torch.float32:
        return contextlib.nullcontext()
    # No cache of converted weights: an update changes the weights half way.
    return torch.autocast(device.type, dtype=precision, cache_enabled=False)


def choose_speed(name: str, device: torch.device) -> str:
    """``auto`` is captured on CUDA, compiled on a CPU, and eager elsewhere."""
    if name not in ("auto", *SPEEDS):
        raise unknown_name("speed", name, ("auto", *SPEEDS))
    if name == "captured" and device.type != "cuda":
        raise UserError(
            f"speed is captured, but device {device.type} has no CUDA graphs; allowed here: auto, "
            "eager, compiled"
        )
    if name == "eager" or (name == "auto" and device.type not in ("cuda", "cpu")):
        return "eager"
    missing = missing_for_compiling(device)
    if missing and name == "auto":
        warnings.warn(f"updates run uncompiled and take much longer: {missing}", stacklevel=2)
        return "eager"
    if missing:
        raise UserError(
            f"speed is {name}, but compiling does not work here: {missing}. Install what is "
            "missing or use --speed eager"
        )
    if name == "auto":
        return "captured" if device.type == "cuda" else "compiled"
    return name


def missing_for_compiling(device: torch.device) -> str:
    """What is missing to compile updates for a device, as half a sentence; empty if nothing is."""
    if device.type == "cpu":
        kernels = wing()
        return kernels.missing_for_compiling() if kernels else NO_KERNELS
    if device.type == "cuda":
        from torch.utils._triton import has_triton

        return "" if has_triton() else "torch.compile needs Triton, which is not installed"
    found = any(shutil.which(name) for name in (os.environ.get("CXX", ""), "g++", "clang++"))
    return "" if found else "torch.compile needs a C++ compiler (g++), which is not installed"


def repeat_exactly(device: torch.device) -> None:
    """Let every CUDA library add up in the same order each time, for the whole process.

    Our own kernels always do.
    """
    if device.type != "cuda":
        raise UserError(
            f"deterministic is on, but device {device.type} cannot promise it; allowed with "
            "--device cuda, and with --device cpu, where updates always repeat"
        )
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read before its first product
    torch.backends.cudnn.benchmark = False  # the fastest kernel of a trial may be another next time
    # nothing reads it before it is written
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.use_deterministic_algorithms(True)


def synchronise(device: torch.device) -> None:
    """Wait until the device has done everything."""
    if device.type == "cuda":
        torch.cuda.synchronize()


@contextlib.contextmanager
def explained(cure: str = "") -> Iterator[None]:
    """A region in which a GPU that fails or is full says so in one message.

    Args:
        cure: what helps; by default what helps training.
    """
    full = (
        "Use a smaller --batch-size or --replay, fewer --seeds, or end other programs on it; the "
        "same command continues from the last checkpoint"
    )
    failed = (
        "The last checkpoint is whole and the same command continues from it; if it fails again, "
        "try --speed eager"
    )
    try:
        yield
    except torch.OutOfMemoryError as error:
        said = str(error).splitlines()[0]
        raise UserError(f"the GPU's memory is full: {said} {cure or full}") from error
    except torch.AcceleratorError as error:
        said = str(error).splitlines()[0]
        raise DeviceError(f"the GPU failed: {said} {cure or failed}") from error
