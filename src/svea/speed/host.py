"""The process that computes: its libraries, its memory and its threads."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator

import torch

from svea.core.machine import usable_cores


def prepare(device: torch.device, exact: bool = False) -> None:
    """Set up the process for updates; the arguments are those of `multiply_float32`."""
    multiply_float32(device, exact)
    if device.type == "cuda":
        torch.backends.cudnn.benchmark = True  # shapes never change: try all kernels once
    if device.type == "cpu":
        keep_freed_memory()
        leave_a_core()


def multiply_float32(device: torch.device, exact: bool) -> None:
    """Say how this process multiplies float32 on a GPU.

    Args:
        device: where it computes; a CPU multiplies float32 as float32 always.
        exact: so does the GPU. Otherwise GPUs from Ampere on use TF32, whose mantissa has 10 bits
            instead of 23, in matrix products ("high") and in convolutions.
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
    at work, two threads took 1.2 to 2.0 times as long as one (docs/notes/demo.md).
    """
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, usable_cores() - 1))


@contextlib.contextmanager
def sharing_cores(device: torch.device, agents: int) -> Iterator[None]:
    """Let agents that act at once share the cores where the CPU computes, and undo it at the end.

    Each acts in a thread of its own, and torch starts threads for each of those. They never take
    the last core: torch's threads spin between two batches, when the environments step, and wait
    for the slowest. On 2 busy cores evaluations took four times as long with two threads as with
    one (docs/evaluation.md). OMP_NUM_THREADS, or fewer threads that were set in torch, stay.
    """
    before = torch.get_num_threads()
    if device.type == "cpu" and "OMP_NUM_THREADS" not in os.environ:
        cores = usable_cores()
        torch.set_num_threads(max(1, min(before, cores - 1, cores // agents)))
    try:
        yield
    finally:
        torch.set_num_threads(before)
