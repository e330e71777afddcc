"""The random convolution as one GPU kernel: in CUDA for bfloat16, else in Triton.

Every sample has a filter of its own, so a library computes it as a grouped convolution with three
channels to a group: on an H200 most of that time goes into changing layouts.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from svea.augment import conv

SOURCES = [Path(__file__).with_name(n) for n in ("tensor_cores.cu", "random_convolution.cu")]
THREADS, RUN = 128, 14  # as in random_convolution.cu
MOST_ERROR = 2**-8  # bfloat16's rounding makes it half of that
Launch = Callable[..., None]


@torch.library.custom_op("svea::random_convolution", mutates_args=())
def random_convolution(x: Tensor, weight: Tensor) -> Tensor:
    """(B, 3k, H, W) and a filter for each sample (B, 3, 3, 3, 3) -> sigmoid of the convolution."""
    launch = kernels(x.device) if fits(x) else None
    if launch:
        return convolve(x, weight, launch)
    from svea.kernels.windows import convolved

    return convolved(x, weight)


@random_convolution.register_fake
def _(x: Tensor, weight: Tensor) -> Tensor:
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


def fits(x: Tensor) -> bool:
    """Whether the kernel in CUDA is made for such pixels: it loads four of them at once."""
    return x.dtype == torch.bfloat16 and x.shape[3] % 4 == 0 and x.data_ptr() % 8 == 0


@functools.cache
def kernels(device: torch.device) -> Launch | None:
    """The kernel in CUDA for a GPU, where it can be compiled and is right."""
    from svea.kernels import nvrtc

    if device.type != "cuda":
        return None
    try:
        launch = nvrtc.Kernels(SOURCES, {}, device)
        check(launch, device)
    except (nvrtc.BuildError, ArithmeticError) as error:
        warnings.warn(f"the random convolution takes longer: {error}", stacklevel=2)
        return None
    return launch


def check(launch: Launch, device: torch.device) -> None:
    """Compare the kernel with the library on noise, before its first use."""
    random = torch.Generator().manual_seed(0)
    x = torch.rand(2, 9, 30, 20, generator=random).bfloat16()
    weight = torch.randn(2, 3, 3, 3, 3, generator=random)
    found = convolve(x.to(device), weight.to(device), launch).cpu().double()
    error = float((found - conv.function(x.double(), weight=weight.double())).abs().max())
    if not error < MOST_ERROR:  # written so that NaN fails
        raise ArithmeticError(f"our kernel is {error:.3g} away from the library's, in [0, 1]")


def convolve(x: Tensor, weight: Tensor, launch: Launch) -> Tensor:
    """`random_convolution` by the kernel in CUDA."""
    batch, channels, rows, columns = x.shape
    frames = channels // 3
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    threads = batch * frames * -(-rows // RUN) * (columns // 4)
    launch(
        "convolve", (-(-threads // THREADS), 1), THREADS, 0,
        x.contiguous(), weight.float().contiguous(), y, batch * frames, frames, rows, columns,
    )  # fmt: skip
    return y
