"""Where and how exactly to compute: device, precision, way of updating, the process's threads."""

import contextlib
import ctypes
import os
import shutil
import sys
import warnings
from collections.abc import Iterable, Iterator
from types import ModuleType

import torch

from svea.core.errors import DeviceError, UserError, unknown_name
from svea.core.machine import usable_cores

SPEEDS = ("eager", "compiled", "captured")
EXACT = "float32-exact"
"""float32 whose products are float32, too; on a GPU plain float32 multiplies in TF32."""
PRECISIONS = ("auto", "float32", EXACT, "bfloat16")
NO_KERNELS = "svea.kernels, the kernels in C and CUDA, is not there; install svea again to have it"


def wing(device: torch.device) -> ModuleType | None:
    """Our own kernels for a device, or none where their folder is missing; their one importer."""
    if device.type not in ("cpu", "cuda"):
        return None
    try:
        from svea import kernels
    except ImportError:
        return None
    # Python also imports a folder that holds no more than what it once compiled.
    return kernels if hasattr(kernels, "accelerate") else None


def choose_device(name: str) -> torch.device:
    """The device for ``auto``, ``cuda``, ``mps`` or ``cpu``; an absent one is an error."""
    found = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    available = [*(device for device, there in found.items() if there), "cpu"]
    if name not in ("auto", *available):
        allowed = ", ".join(available)
        raise UserError(f"device {name} is not available; allowed here: auto, {allowed}")
    return torch.device(available[0] if name == "auto" else name)


def choose_precision(name: str, device: torch.device) -> torch.dtype:
    """bfloat16 on GPUs that multiply it natively (``auto``), float32 elsewhere, or as asked for."""
    if name not in PRECISIONS:
        raise unknown_name("precision", name, PRECISIONS)
    if device.type == "cpu" and name == "bfloat16":
        raise UserError("precision is bfloat16, which is for GPUs; allowed here: auto, float32")
    native = device.type == "cuda" and torch.cuda.is_bf16_supported()
    low = name == "bfloat16" or (name == "auto" and native)
    return torch.bfloat16 if low else torch.float32


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
    best = {"cuda": "captured", "cpu": "compiled"}.get(device.type, "eager")
    chosen = best if name == "auto" else name
    if chosen == "eager" or not (missing := missing_for_compiling(device)):
        return chosen
    if name != "auto":
        raise UserError(f"speed is {name}: {missing}. Install it, or use --speed eager")
    warnings.warn(f"updates run uncompiled and take much longer: {missing}", stacklevel=2)
    return "eager"


def missing_for_compiling(device: torch.device) -> str:
    """What is missing to compile updates for a device, as half a sentence; empty if nothing is."""
    if device.type == "cpu":
        kernels = wing(device)
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
            f"deterministic is on, but device {device.type} cannot promise it; allowed: --device "
            "cuda, or cpu, where updates always repeat"
        )
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read before its first product
    torch.backends.cudnn.benchmark = False  # the fastest kernel of a trial may be another next time
    # Nothing reads memory before it is written.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.use_deterministic_algorithms(True)


def synchronise(device: torch.device) -> None:
    """Wait until the device has done everything."""
    if device.type == "cuda":
        torch.cuda.synchronize()


@contextlib.contextmanager
def explained(cure: str = "") -> Iterator[None]:
    """A region in which a GPU that fails or is full says so, with a cure: by default training's."""
    again = "the same command continues from the last checkpoint"
    full = "Use a smaller --batch-size or --replay, fewer --seeds, or end other programs on it"
    try:
        yield
    except torch.OutOfMemoryError as error:
        said = str(error).splitlines()[0]
        raise UserError(f"the GPU's memory is full: {said} {cure or f'{full}; {again}'}") from error
    except torch.AcceleratorError as error:
        said, slower = str(error).splitlines()[0], "or try --speed eager"
        raise DeviceError(f"the GPU failed: {said} {cure or f'{again}, {slower}'}") from error


# The process --------------------------------------------------------------------------------------


def check_one_arithmetic(precisions: Iterable[str], on_gpu: Iterable[bool]) -> None:
    """Refuse agents that would change each other's products: a process has one way on a GPU."""
    if len({precision == EXACT for precision in precisions}) > 1 and any(on_gpu):
        raise UserError(
            f"agents with --precision {EXACT} and with another cannot share a process on a GPU; "
            "train them one after the other, or evaluate them with --jobs 1"
        )


def prepare(device: torch.device, exact: bool = False) -> None:
    """Set up the process for updates."""
    multiply_float32(device, exact)
    if device.type == "cuda":
        torch.backends.cudnn.benchmark = True  # shapes never change: try all kernels once
    if device.type == "cpu":
        keep_freed_memory()
        leave_a_core()


def multiply_float32(device: torch.device, exact: bool) -> None:
    """Let this process multiply float32 as float32 on a GPU, too, or not quite.

    If not, GPUs from Ampere on use TF32, whose mantissa has 10 bits instead of 23, in matrix
    products ("high") and in convolutions.
    """
    if device.type == "cuda":
        torch.set_float32_matmul_precision("highest" if exact else "high")
        torch.backends.cudnn.allow_tf32 = not exact


def warm_up(device: torch.device) -> None:
    """Let a GPU make its context and load its matrix library, while the environments start.

    Both happen at the first use otherwise, and take seconds.
    """
    if device.type == "cuda":
        square = torch.ones((64, 64), dtype=torch.bfloat16, device=device)
        (square @ square).sum().item()


def keep_freed_memory() -> None:
    """Let the C library keep the memory of freed tensors for the next ones.

    By default glibc gives large blocks back at once, and every update pays for fresh pages: about
    a sixth of its time at 40 pixels and batch 128, in noisy runs.
    """
    if sys.platform == "linux":
        trim_threshold, map_threshold = -1, -3  # <malloc.h>
        with contextlib.suppress(AttributeError):  # not glibc
            ctypes.CDLL(None).mallopt(map_threshold, 1 << 29)
            ctypes.CDLL(None).mallopt(trim_threshold, (1 << 31) - 1)


def leave_a_core() -> None:
    """Leave one core to the environments, unless OMP_NUM_THREADS says how many threads to take.

    All threads wait for the slowest one many times in every update. On 2 cores, with anything else
    at work, two threads took 1.2 to 2.0 times as long as one (docs/lab-book.md).
    """
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, usable_cores() - 1))


@contextlib.contextmanager
def sharing_cores(device: torch.device, agents: int) -> Iterator[None]:
    """Let agents that act at once share the cores where the CPU computes, and undo it at the end.

    Each has a thread, for which torch starts more. The last core is left to the environments: on 2
    busy ones evaluations took four times as long with two threads as with one
    (docs/evaluation.md). OMP_NUM_THREADS, or fewer threads that were set in torch, stay.
    """
    before = torch.get_num_threads()
    if device.type == "cpu" and "OMP_NUM_THREADS" not in os.environ:
        cores = usable_cores()
        torch.set_num_threads(max(1, min(before, cores - 1, cores // agents)))
    try:
        yield
    finally:
        torch.set_num_threads(before)
