"""Fast versions of what an agent computes, put on from outside.

Agents, networks, views and augmentations are plain PyTorch and know nothing of this module.
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from svea import views
from svea.augment import Augmentation, Pictures, conv, crop, shift, transform
from svea.augment.images import ImageBank, place_crops
from svea.speed.fusing import compile_networks, further_trunks
from svea.speed.graphs import SideStream

if TYPE_CHECKING:
    from svea.agents.agent import Agent


def accelerate(agent: Agent, speed: str, precision: torch.dtype = torch.bfloat16) -> None:
    """Put fast versions of its parts on an agent; with ``eager`` it stays as it was written.

    On a CPU these are kernels in C, which are compiled in a second. torch.compile is left alone
    there: it takes most of a minute and gains next to nothing, because it calls the same library
    (docs/notes/speed.md). Elsewhere torch compiles networks and augmentations, and on an NVIDIA GPU
    our own kernels take the place of some.

    Args:
        agent: whose parts are replaced; nothing that other agents use is touched.
        speed: ``eager``, ``compiled`` or ``captured``, as `choose_speed` resolved it.
        precision: of the networks; some kernels for GPUs are made for bfloat16 alone.
    """
    if speed == "eager":
        return
    maker, device = agent.view_maker, agent.device
    maker.weak, maker.strong = (
        transform(augment, partial(fast_augmentation, device=device))
        for augment in (maker.weak, maker.strong)
    )
    if isinstance(maker.strong, Augmentation):  # in a chain, each checks what the others made
        maker.strong = replace(maker.strong, of_bytes=True)
    if device.type == "cpu":
        maker.pixels, maker.join = remaining_pixels, join_views
        compute_in_c(agent.networks.values())
        step_in_c(agent)
    else:
        maker.pixels = pixels_on_cuda if device.type == "cuda" else compiled_pixels
        compile_networks(agent, precision)
    if speed == "captured":
        agent.overlap = SideStream()


# Views --------------------------------------------------------------------------------------------


OF_SPECTRA = ("spectrum", "amplitude_mix")
"""Fourier transforms, for whose complex numbers torch.compile makes no code: it would warn, and
call what is called without it."""


def fast_augmentation(augment: Augmentation, device: torch.device) -> Augmentation:
    """The augmentation as an accelerated update computes it; its draws stay the same.

    Draws are not compiled: torch.compile does not take explicit generators.
    """
    fast = with_kernels(augment, device)
    if device.type == "cpu" or fast.function is not augment.function or augment.name in OF_SPECTRA:
        return fast  # nothing is left to compile
    return replace(fast, function=compiled(fast.function))


def with_kernels(augment: Augmentation, device: torch.device) -> Augmentation:
    """The augmentation with our own kernel for a device, where there is one."""
    kernels = {"cpu": IN_C, "cuda": ON_CUDA}.get(device.type, {})
    fast = replace(augment, function=kernels.get(augment.name, augment.function))
    if fast.function in (_shift_on_cuda, _crop_on_cuda):
        return WindowsOfPixels(**vars(fast))
    images, kinds = (
        fast.parameters.get("images"),
        {"cpu": _pictures_in_c, "cuda": _pictures_on_cuda},
    )
    if device.type in kinds and isinstance(images, ImageBank):
        return fast.bind(images=kinds[device.type](images))
    return fast


def _pictures_in_c(bank: ImageBank) -> Pictures:
    """The pictures of a bank, resized by our own kernel, to the same levels of 255 or the next."""
    from svea.kernels.cpu_pictures import PicturesInC

    return PicturesInC(bank)


def _pictures_on_cuda(bank: ImageBank) -> Pictures:
    """The pictures of a bank, resized by our own kernel, unless that does not work on this GPU.

    It adds up in float32, the bank itself in float16: one number in twenty comes out at the next
    level of 255.
    """
    try:
        from svea.kernels.pictures import FastPictures

        fast = FastPictures(bank, compiled(place_crops))
        fast.check()
    except Exception as error:  # whatever a compiler or a driver may raise
        slow = f"overlay's pictures are resized as products of matrices and take longer: {error}"
        warnings.warn(slow, stacklevel=2)
        return bank
    return fast


def _conv_in_c(x: Tensor, *, weight: Tensor) -> Tensor:
    from svea.kernels import cpu

    if cpu.suits_random_convolution(x):
        return cpu.random_convolution(x, weight)
    return conv.function(x, weight=weight)


def _shift_in_c(x: Tensor, *, corner: Tensor, pad: int) -> Tensor:
    from svea.kernels import cpu

    if x.dtype != torch.uint8:
        return shift.function(x, corner=corner, pad=pad)
    return cpu.window_pixels(x, corner, x.shape[2], x.shape[3], pad)


def _crop_in_c(x: Tensor, *, corner: Tensor, size: int) -> Tensor:
    from svea.kernels import cpu

    if x.dtype != torch.uint8:
        return crop.function(x, corner=corner, size=size)
    return cpu.window_pixels(x, corner, size, size, 0)


def _conv_on_cuda(x: Tensor, *, weight: Tensor) -> Tensor:
    from svea.kernels.random_convolution import random_convolution

    return random_convolution(x, weight)


def _shift_on_cuda(x: Tensor, *, corner: Tensor, pad: int) -> Tensor:
    return _windows_on_cuda(x, corner, x.shape[2], x.shape[3], pad)


def _crop_on_cuda(x: Tensor, *, corner: Tensor, size: int) -> Tensor:
    return _windows_on_cuda(x, corner, size, size, 0)


def _overlay_drift_on_cuda(
    x: Tensor, *, picture: Tensor, speed: Tensor, margin: int, weight: float
) -> Tensor:
    from svea.kernels.windows import mixed_drifting

    return mixed_drifting(x, picture, speed, margin, weight)


class WindowsOfPixels(Augmentation):
    """A shift or a crop whose kernel makes pixels of bytes in the same pass."""

    def apply(self, x: Tensor, draw: dict[str, Any]) -> Tensor:
        """Inside the surrounding autocast region, which others leave: it says what pixels are.

        In float32 they would be converted for every pass of a network, 16 us of an H200 each.
        """
        with torch.no_grad():
            return self.function(x, **draw)


def _windows_on_cuda(x: Tensor, corner: Tensor, height: int, width: int, pad: int) -> Tensor:
    """Windows; bytes become pixels in the same pass."""
    from svea.kernels.windows import windows

    def cut(images: Tensor, dtype: torch.dtype) -> Tensor:
        return windows(images, corner, height, width, pad, dtype)

    return cut(x, x.dtype) if x.is_floating_point() else views.pixels(x, cut)


IN_C: dict[str, Callable[..., Tensor]] = {
    "conv": _conv_in_c,
    "shift": _shift_in_c,
    "crop": _crop_in_c,
}
ON_CUDA: dict[str, Callable[..., Tensor]] = {
    "conv": _conv_on_cuda,
    "shift": _shift_on_cuda,
    "crop": _crop_on_cuda,
    "overlay_drift": _overlay_drift_on_cuda,
}


def remaining_pixels(images: Tensor) -> Tensor:
    """`views.pixels`, of what a kernel has not made pixels of already."""
    return images if images.is_floating_point() else views.pixels(images)


def join_views(views: list[Tensor]) -> Tensor:
    """`torch.cat`, without a copy where kernels have written the views side by side."""
    first = views[0]
    for number, view in enumerate(views):
        expected = first.storage_offset() + number * first.numel()
        together = view.untyped_storage().data_ptr() == first.untyped_storage().data_ptr()
        if not (together and view.storage_offset() == expected and view.shape == first.shape):
            return torch.cat(views)
    return first.as_strided((len(views) * len(first), *first.shape[1:]), first.stride())


def pixels_on_cuda(images: Tensor) -> Tensor:
    """`views.pixels` as a kernel of our own, of what another has not made pixels of already."""
    from svea.kernels.windows import scaled

    return images if images.is_floating_point() else views.pixels(images, scaled)


def compiled_pixels(images: Tensor) -> Tensor:
    """`views.pixels`, compiled."""
    return views.pixels(images, compiled(views.scaled))


@cache
def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function, once for all agents; torch compiles it again for every new shape."""
    return torch.compile(function, dynamic=False)


# Networks -----------------------------------------------------------------------------------------


def compute_in_c(networks: Iterable[nn.Module]) -> None:
    """Let kernels in C compute networks, where they fit: most of an update on a CPU."""
    from svea.kernels.cpu import Convolutions

    for network in networks:
        for part in (network, *further_trunks(network)):
            if Convolutions.fits(part):
                part.forward = Convolutions(part)  # type: ignore[arg-type, assignment]


def step_in_c(agent: Agent) -> None:
    """Let kernels in C take the optimisers' steps and move the targets, where they fit."""
    from svea.kernels.cpu_steps import StepsInC
    from svea.kernels.steps import has_right_tensors

    if has_right_tensors(agent):
        fast = StepsInC(agent)
        agent.step, agent.update_target = fast.step, fast.update_target  # type: ignore[method-assign]


def uncompiled(speed: str, device: torch.device) -> contextlib.AbstractContextManager[object]:
    """Nothing compiled by torch: acting sees other batch sizes, and each would be compiled."""
    if speed == "eager" or device.type == "cpu" or "torch._dynamo" not in sys.modules:
        return contextlib.nullcontext()  # importing the compiler takes seconds
    return torch.compiler.set_stance("force_eager")
