"""The random convolution of bfloat16 pixels in CUDA (views.cu)."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

SOURCES = [Path(__file__).with_name(name) for name in ("tensor_cores.cu", "views.cu")]
THREADS, RUN = 128, 14  # as in views.cu
Launch = Callable[..., None]


@functools.cache
def kernels(device: torch.device) -> Launch | None:
    """The kernel for a GPU, where it can be compiled."""
    from svea.speed.kernels import nvrtc

    try:
        return nvrtc.Kernels(SOURCES, {}, device)
    except nvrtc.BuildError as error:
        warnings.warn(f"the random convolution takes longer: {error}", stacklevel=2)
        return None


def fits(x: Tensor) -> bool:
    """Whether the kernel is made for such pixels."""
    return x.dtype == torch.bfloat16 and x.shape[3] % 4 == 0


def convolve(x: Tensor, weight: Tensor, launch: Launch) -> Tensor:
    """(B, 3k, H, W) and a filter for each sample (B, 3, 3, 3, 3) -> sigmoid of the convolution."""
    batch, channels, rows, columns = x.shape
    frames = channels // 3
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    threads = batch * frames * -(-rows // RUN) * (columns // 4)
    launch(
        "convolve", (-(-threads // THREADS), 1), THREADS, 0,
        x.contiguous(), weight.float().contiguous(), y, batch * frames, frames, rows, columns,
    )  # fmt: skip
    return y
