"""Fast versions of what an agent computes, put on from outside.

Agents, networks, views and augmentations are plain PyTorch and know nothing of this module.
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from svea import views
from svea.agents.auxiliary import PAD
from svea.agents.sac import SAC
from svea.augment import Augmentation, Pictures, conv, crop, shift, transform
from svea.augment.images import ImageBank, place_crops
from svea.networks import Actor
from svea.networks.frame_cnn import FrameCNN
from svea.networks.vit import Attention, ViT
from svea.replay import Replay
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
    if device.type == "cpu":
        maker.pixels, maker.join = remaining_pixels, join_views
        convolve_in_c(agent.networks.values())
    else:
        maker.pixels = pixels_on_cuda if device.type == "cuda" else compiled_pixels
        compile_networks(agent, precision)
    if speed == "captured":
        agent.overlap = SideStream()


# Views --------------------------------------------------------------------------------------------


def fast_augmentation(augment: Augmentation, device: torch.device) -> Augmentation:
    """The augmentation as an accelerated update computes it; its draws stay the same.

    Draws are not compiled: torch.compile does not take explicit generators.
    """
    fast = with_kernels(augment, device)
    if device.type == "cpu" or fast.function is not augment.function:
        return fast  # nothing is left to compile
    return replace(fast, function=compiled(fast.function))


def with_kernels(augment: Augmentation, device: torch.device) -> Augmentation:
    """The augmentation with our own kernel for a device, where there is one."""
    kernels = {"cpu": IN_C, "cuda": ON_CUDA}.get(device.type, {})
    fast = replace(augment, function=kernels.get(augment.name, augment.function))
    images = fast.parameters.get("images")
    if device.type == "cuda" and isinstance(images, ImageBank):
        return fast.bind(images=_pictures_on_cuda(images))
    return fast


def _pictures_on_cuda(bank: ImageBank) -> Pictures:
    """The pictures of a bank, resized by our own kernel, unless that does not work on this GPU."""
    try:
        from svea.speed.kernels.pictures import FastPictures

        fast = FastPictures(bank, compiled(place_crops))
        fast.check()
    except Exception as error:  # whatever a compiler or a driver may raise
        slow = f"overlay's pictures are resized as products of matrices and take longer: {error}"
        warnings.warn(slow, stacklevel=2)
        return bank
    return fast


def _conv_in_c(x: Tensor, *, weight: Tensor) -> Tensor:
    from svea.speed.kernels import cpu

    if cpu.suits_random_convolution(x):
        return cpu.random_convolution(x, weight)
    return conv.function(x, weight=weight)


def _shift_in_c(x: Tensor, *, corner: Tensor, pad: int) -> Tensor:
    from svea.speed.kernels import cpu

    if x.dtype != torch.uint8 or torch.is_autocast_enabled("cpu"):
        return shift.function(x, corner=corner, pad=pad)
    return cpu.window_pixels(x, corner, x.shape[2], x.shape[3], pad)


def _crop_in_c(x: Tensor, *, corner: Tensor, size: int) -> Tensor:
    from svea.speed.kernels import cpu

    if x.dtype != torch.uint8 or torch.is_autocast_enabled("cpu"):
        return crop.function(x, corner=corner, size=size)
    return cpu.window_pixels(x, corner, size, size, 0)


def _conv_on_cuda(x: Tensor, *, weight: Tensor) -> Tensor:
    from svea.speed.kernels.random_convolution import random_convolution

    return random_convolution(x, weight)


def _shift_on_cuda(x: Tensor, *, corner: Tensor, pad: int) -> Tensor:
    from svea.speed.kernels.windows import windows

    return windows(x, corner, x.shape[2], x.shape[3], pad)


def _crop_on_cuda(x: Tensor, *, corner: Tensor, size: int) -> Tensor:
    from svea.speed.kernels.windows import windows

    return windows(x, corner, size, size, 0)


IN_C: dict[str, Callable[..., Tensor]] = {
    "conv": _conv_in_c,
    "shift": _shift_in_c,
    "crop": _crop_in_c,
}
ON_CUDA: dict[str, Callable[..., Tensor]] = {
    "conv": _conv_on_cuda,
    "shift": _shift_on_cuda,
    "crop": _crop_on_cuda,
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
    """`views.pixels`, as a kernel of our own."""
    from svea.speed.kernels.windows import scaled

    return views.pixels(images, scaled)


def compiled_pixels(images: Tensor) -> Tensor:
    """`views.pixels`, compiled."""
    return views.pixels(images, compiled(views.scaled))


@cache
def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function, once for all agents; torch compiles it again for every new shape."""
    return torch.compile(function, dynamic=False)


# Networks -----------------------------------------------------------------------------------------


def convolve_in_c(networks: Iterable[nn.Module]) -> None:
    """Let kernels in C compute convolutions, where they fit: most of an update on a CPU."""
    from svea.speed.kernels import cpu

    for network in networks:
        for part in (network, *further_trunks(network)):
            if cpu.Convolutions.fits(part):
                part.forward = cpu.Convolutions(part)  # type: ignore[arg-type, assignment]


def further_trunks(network: nn.Module) -> Iterator[nn.Module]:
    """Networks in an auxiliary task that may be trunks: SODA's slow one, the part PAD shares."""
    yield from network.children()
    if isinstance(network, PAD) and network.own_layers:
        yield network.shared


def compile_networks(agent: Agent, precision: torch.dtype) -> None:
    """Replace every network's forward pass, and so its backward pass: by kernels, else compiled."""
    alone, low = looks_alone(agent), precision == torch.bfloat16
    for network in agent.networks.values():
        if network is agent.auxiliary:
            for part in further_trunks(network) if agent.device.type == "cuda" else ():
                fuse_convolutions(part)
            continue
        if agent.device.type == "cuda":
            if fuse_convolutions(network):
                continue
            if low and (fuse_head(network) or (alone and fuse_vit(network))):
                continue
            fuse_attention(network)
        torch._dynamo.config.cache_size_limit = 64  # a network sees several batch sizes
        network.compile(dynamic=False)
    if agent.device.type == "cuda":
        fuse_steps(agent)
        fuse_losses(agent)
        leave_views_apart(agent)


def fuse_head(network: nn.Module) -> bool:
    """Let our own kernels compute a policy or Q-functions, where they fit."""
    from svea.speed.kernels import nvrtc
    from svea.speed.kernels.heads import FusedHead

    if not FusedHead.fits(network):
        return False
    try:
        head = FusedHead(network)  # type: ignore[arg-type]
    except nvrtc.BuildError as error:
        slow = f"policy and Q-functions are compiled by torch and take longer: {error}"
        warnings.warn(slow, stacklevel=2)
        return False
    network.forward = head  # type: ignore[method-assign]
    if isinstance(network, Actor):
        network.sample = head.sample  # type: ignore[method-assign]
    return True


def fuse_steps(agent: Agent) -> None:
    """Let our own kernels take the optimisers' steps, where they fit."""
    from svea.speed.kernels import nvrtc
    from svea.speed.kernels.steps import FusedSteps

    if not FusedSteps.fits(agent):
        return
    try:
        fast = FusedSteps(agent)
    except nvrtc.BuildError as error:
        warnings.warn(f"optimisers take longer: {error}", stacklevel=2)
        return
    agent.step, agent.update_target = fast.step, fast.update_target  # type: ignore[method-assign]


def fuse_losses(agent: Agent) -> None:
    """Let our own kernels compute losses and their slopes, on GPUs that this was tried on."""
    from svea.speed.kernels import nvrtc
    from svea.speed.kernels.updates import MOST_VIEWS, FusedLosses

    few = len(agent.streams.prediction) <= MOST_VIEWS
    if not few or torch.cuda.get_device_capability(agent.device) < (9, 0):
        return
    try:
        fast = FusedLosses(agent)
    except nvrtc.BuildError as error:
        warnings.warn(f"losses take longer: {error}", stacklevel=2)
        return
    agent.weighted_error = fast.weighted_error  # type: ignore[method-assign]
    if isinstance(agent, SAC):
        agent.policy_losses = fast.policy_losses  # type: ignore[method-assign]


def fuse_sampling(replay: Replay) -> None:
    """Let a kernel of our own draw batches from a replay on a GPU, where it fits."""
    from svea.speed.kernels import nvrtc
    from svea.speed.kernels.updates import FusedSampling

    if not FusedSampling.fits(replay):
        return
    try:
        replay.sample = FusedSampling(replay)  # type: ignore[method-assign]
    except nvrtc.BuildError as error:
        warnings.warn(f"sampling takes longer: {error}", stacklevel=2)


def leave_views_apart(agent: Agent) -> None:
    """Hand views to the trunk as they lie, if nothing but our own kernels looks at them."""
    from svea.speed.kernels.trunk import FusedTrunk
    from svea.speed.kernels.vit import FusedViT

    trunks = (agent.trunk, agent.target_trunk)
    if looks_alone(agent) and all(isinstance(t.forward, FusedTrunk | FusedViT) for t in trunks):
        agent.view_maker.join = tuple


def looks_alone(agent: Agent) -> bool:
    """Whether nothing but the trunk looks at views, and nothing asks for their gradient."""
    return agent.auxiliary is None and agent.masker is None


def fuse_vit(network: nn.Module) -> bool:
    """Let our own kernels compute a ViT's forward and backward pass, where they fit."""
    if not isinstance(network, ViT):
        return False
    from svea.speed.kernels.vit import FusedViT

    if not FusedViT.fits(network):
        return False
    fast = FusedViT(network)
    try:
        fast.check()
    except Exception as error:  # whatever a compiler or a driver may raise
        slow = f"the ViT is compiled by torch and takes longer: {error}"
        warnings.warn(slow, stacklevel=2)
        return False
    network.forward = fast  # type: ignore[method-assign, assignment]
    return True


def fuse_convolutions(network: nn.Module) -> bool:
    """Let our own kernels compute an encoder's forward and backward pass, where they fit."""
    if isinstance(network, FrameCNN):
        return fuse_frames(network)
    from svea.speed.kernels import nvrtc
    from svea.speed.kernels.convolutions import FusedConvolutions
    from svea.speed.kernels.trunk import FusedTrunk

    if not FusedConvolutions.fits(network):
        return False
    lay_out(network)
    if FusedTrunk.fits(network):
        try:
            network.forward = FusedTrunk(network)  # type: ignore[arg-type, assignment]
            return True
        except nvrtc.BuildError as error:
            slow = f"convolutions run a layer at a time and take longer: {error}"
            warnings.warn(slow, stacklevel=2)
    elif lacks := FusedTrunk.obstacle(network):
        slow = f"convolutions run a layer at a time and take longer: this GPU has {lacks}"
        warnings.warn(slow, stacklevel=2)
    network.forward = FusedConvolutions(network)  # type: ignore[arg-type, assignment]
    return True


def fuse_frames(network: FrameCNN) -> bool:
    """The same for the frame-wise encoder, which torch compiles where our kernels do not fit."""
    from svea.speed.kernels import nvrtc
    from svea.speed.kernels.trunk import FusedFrames

    lacks = "our kernels are made for 16 filters on each of up to 3 frames, then 32 for all"
    if FusedFrames.fits(network):
        try:
            fused = FusedFrames(network)
            lay_out(network)
            network.forward = fused  # type: ignore[method-assign]
            return True
        except nvrtc.BuildError as error:
            lacks = str(error)
    elif obstacle := FusedFrames.obstacle(network):
        lacks = f"this GPU has {obstacle}"
    slow = f"encoder frames is compiled by torch and takes longer: {lacks}"
    warnings.warn(slow, stacklevel=2)
    return False


def lay_out(network: nn.Module) -> None:
    """Give weights the layout in which our kernels read them and write their gradients."""
    for weight in network.parameters():
        weight.data = weight.data.contiguous()


def fuse_attention(network: nn.Module) -> None:
    """Let our own kernels mix the tokens of a ViT."""
    from svea.speed.kernels.attention import attention

    for module in network.modules():
        if isinstance(module, Attention):
            module.mix = attention


def uncompiled(speed: str, device: torch.device) -> contextlib.AbstractContextManager[object]:
    """Nothing compiled by torch: acting sees other batch sizes, and each would be compiled."""
    if speed == "eager" or device.type == "cpu" or "torch._dynamo" not in sys.modules:
        return contextlib.nullcontext()  # importing the compiler takes seconds
    return torch.compiler.set_stance("force_eager")
