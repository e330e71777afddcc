"""How a kernel in C is called, and which threads share its work (team.c)."""

from __future__ import annotations

import ctypes
import functools
import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from svea.core.machine import usable_cores

CHUNKS = 16  # parts of a batch that threads take one by one; as in the source
MOST_ARGUMENTS = 20  # of a kernel; as in the source
KINDS = (torch.float32, torch.uint8, torch.int32, torch.int64)  # of tensors
WORTH_SHARING = 32  # pictures; with fewer, waking another thread takes longer than the work


class Work(ctypes.Structure):
    """A kernel and its arguments, as the source has it."""

    _fields_ = (("function", ctypes.c_void_p), ("arguments", ctypes.c_long * MOST_ARGUMENTS))


def threads() -> int:
    """How many threads share a kernel's work: every core, or as many as OMP_NUM_THREADS says.

    A core that an environment keeps busy for a while takes fewer parts of the work; nothing waits
    for it. That is not so for torch's own threads, which all wait for the slowest (`leave_a_core`),
    so that they are used only if there are several of them anyway.
    """
    return torch.get_num_threads() if "OMP_NUM_THREADS" in os.environ else usable_cores()


@functools.cache
def torch_threads() -> Any:
    """The function that lets torch's own threads work, or none where they are of another kind."""
    found = next((Path(torch.__file__).parent / "lib").glob("libgomp*"), None)
    return ctypes.CDLL(str(found)).GOMP_parallel if found else None


def call(kernels: ctypes.CDLL, function: Any, batch: int, *arguments: Any) -> None:
    """Call a kernel, with the help of other threads where the batch is worth it.

    Torch's threads are the helpers if it has several: they spin for a while after each of its own
    operations, and a second set would have to share their cores.
    """
    following, kept = ctypes.c_long(0), []
    work = Work(ctypes.cast(function, ctypes.c_void_p))
    for number, argument in enumerate(arguments):
        if isinstance(argument, (list, tuple)):
            kept.append((ctypes.c_long * len(argument))(*map(_as_number, argument)))
            work.arguments[number] = ctypes.addressof(kept[-1])
        else:
            work.arguments[number] = _as_number(argument)
    work.arguments[len(arguments)] = ctypes.addressof(following)
    count = min(threads(), CHUNKS) if batch >= WORTH_SHARING else 1
    of_torch = min(torch.get_num_threads(), count)  # another number would end and start threads
    if of_torch > 1 and torch_threads():
        kernels.share_with_torch(ctypes.byref(work), ctypes.c_long(of_torch), torch_threads())
    else:
        kernels.share_with_helpers(ctypes.byref(work), ctypes.c_long(count))


def _as_number(argument: Tensor | int | None) -> int:
    """An argument of a kernel: where a contiguous tensor or none begins, or a whole number."""
    if argument is None:
        return 0
    if isinstance(argument, int):
        return argument
    if not argument.is_contiguous() or argument.dtype not in KINDS:
        raise TypeError("a kernel in C was given a tensor that is not plain")
    return argument.data_ptr()
