"""What our kernels compute on an NVIDIA GPU: views, networks, optimisers, losses and sampling.

A kernel of a table is tried where it fits. One that cannot be built or is wrong on this GPU leaves
the work to torch, and a warning says what takes longer. Triton is imported by those that need it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from svea import views
from svea.agents.agent import SAC
from svea.augment import Augmentation, Pictures
from svea.augment.images import ImageBank, place_crops
from svea.kernels.heads import FusedHead
from svea.kernels.steps import FusedSteps
from svea.kernels.trunk import FusedFrames, FusedTrunk, fused_trunk
from svea.kernels.updates import FusedLosses, FusedSampling
from svea.networks import Actor
from svea.networks.encoders import CNN
from svea.networks.parts import FrameCNN
from svea.networks.vit import Attention, ViT
from svea.speed.accelerate import compiled, further_trunks

if TYPE_CHECKING:
    from svea.agents.agent import Agent


class Kernel(NamedTuple):
    """What takes the place of some methods of an owner: a network, an agent, a replay."""

    slow: str
    """What takes longer without it."""
    fits: Callable[[Any], bool]
    make: Callable[[Any], dict[str, Callable[..., Any]]]
    """The owner's methods by name; raises what a compiler, a driver or a check may raise."""
    lacks: Callable[[Any], str] = lambda owner: ""
    """What is in the way where it should fit and does not; empty if there is nothing to say."""


def take_over(kernel: Kernel, owner: Any) -> bool:
    """Assign a kernel over an owner's methods, if it fits; else warn if that is a loss."""
    why = kernel.lacks(owner)
    if kernel.fits(owner):
        try:
            methods = kernel.make(owner)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # whatever a compiler or a driver may raise
            why = str(error)
        else:
            for name, method in methods.items():
                setattr(owner, name, method)
            return True
    if why:
        warnings.warn(f"{kernel.slow}: {why}", stacklevel=2)
    return False


# Networks -----------------------------------------------------------------------------------------


def _head(network: Any) -> dict[str, Callable[..., Any]]:
    head = FusedHead(network)
    return {"forward": head} | ({"sample": head.sample} if isinstance(network, Actor) else {})


def _trunk(network: Any) -> dict[str, Callable[..., Any]]:
    lay_out(network)
    return {"forward": fused_trunk(network)}


def _fits_layers(network: nn.Module) -> bool:
    if not isinstance(network, CNN):
        return False
    from svea.kernels.convolutions import FusedConvolutions

    return FusedConvolutions.fits(network)


def _layers(network: Any) -> dict[str, Callable[..., Any]]:
    from svea.kernels.convolutions import FusedConvolutions

    lay_out(network)
    return {"forward": FusedConvolutions(network)}


def _fits_vit(network: nn.Module) -> bool:
    if not isinstance(network, ViT):
        return False
    from svea.kernels.vit import FusedViT

    return FusedViT.fits(network)


def _vit(network: Any) -> dict[str, Callable[..., Any]]:
    from svea.kernels.vit import FusedViT

    fast = FusedViT(network)
    fast.check()
    return {"forward": fast}


def _lacks_of_trunk(network: nn.Module) -> str:
    lacks = isinstance(network, CNN) and FusedTrunk.obstacle(network)
    return f"this GPU has {lacks}" if lacks else ""


def _lacks_of_frames(network: nn.Module) -> str:
    if not isinstance(network, FrameCNN) or FusedFrames.fits(network):
        return ""
    if lacks := FusedFrames.obstacle(network):
        return f"this GPU has {lacks}"
    return "our kernels are made for 16 filters on each of up to 3 frames, then 32 for all"


CONVOLUTIONS = (
    Kernel(
        "encoder frames is compiled by torch and takes longer",
        lambda network: isinstance(network, FrameCNN) and FusedFrames.fits(network),
        _trunk,
        _lacks_of_frames,
    ),
    Kernel(
        "convolutions run a layer at a time and take longer",
        lambda network: isinstance(network, CNN) and FusedTrunk.fits(network),
        _trunk,
        _lacks_of_trunk,
    ),
    Kernel("convolutions are compiled by torch and take longer", _fits_layers, _layers),
)
"""Of an encoder; the first that can be had."""
HEAD = Kernel("policy and Q-functions are compiled by torch and take longer", FusedHead.fits, _head)
VIT = Kernel("the ViT is compiled by torch and takes longer", _fits_vit, _vit)


def fuse(network: nn.Module, low: bool = False, alone: bool = False) -> bool:
    """Let our own kernels compute a network's forward and backward pass, where they fit.

    Args:
        network: of an agent, or a part of its auxiliary task.
        low: whether in bfloat16.
        alone: whether nothing asks for the gradient of what it sees.
    """
    kernels = [*CONVOLUTIONS, *([HEAD] if low else []), *([VIT] if low and alone else [])]
    return any(take_over(kernel, network) for kernel in kernels)


def lay_out(network: nn.Module) -> None:
    """Give weights the layout in which our kernels read them and write their gradients."""
    for weight in network.parameters():
        weight.data = weight.data.contiguous()


def fuse_attention(network: nn.Module) -> None:
    """Let our own kernels mix the tokens of a ViT."""
    for module in network.modules():
        if isinstance(module, Attention):
            from svea.kernels.attention import attention

            module.mix = attention


# Agents and replays -------------------------------------------------------------------------------


def _steps(agent: Any) -> dict[str, Callable[..., Any]]:
    networks = agent.networks.values()
    heads = [network.forward for network in networks if isinstance(network.forward, FusedHead)]
    fast = FusedSteps(agent, heads=heads)
    return {"step": fast.step, "update_target": fast.update_target}


def _losses(agent: Any) -> dict[str, Callable[..., Any]]:
    fast = FusedLosses(agent)
    methods: dict[str, Callable[..., Any]] = {"weighted_error": fast.weighted_error}
    return methods | ({"policy_losses": fast.policy_losses} if isinstance(agent, SAC) else {})


STEPS = Kernel("optimisers take longer", FusedSteps.fits, _steps)
LOSSES = Kernel("losses take longer", FusedLosses.fits, _losses)
SAMPLING = Kernel(
    "sampling takes longer", FusedSampling.fits, lambda replay: {"sample": FusedSampling(replay)}
)


def accelerate(agent: Agent, precision: torch.dtype) -> set[nn.Module]:
    """Put kernels on an agent; the networks that they compute, which torch is not to compile."""
    agent.view_maker.pixels = pixels
    if agent.parts.names:
        slow = "sampling, and policy and Q-functions or two encoders, take longer"
        why = f"no kernel of ours is made for observations of {agent.parts}"
        warnings.warn(f"{slow}: {why}", stacklevel=2)
    alone = agent.auxiliary is None and agent.masker is None
    taken = set()
    for network in agent.networks.values():
        if network is agent.auxiliary:
            taken |= {part for part in further_trunks(network) if fuse(part)}
        elif fuse(network, precision == torch.bfloat16, alone):
            taken.add(network)
        else:
            fuse_attention(network)
    take_over(STEPS, agent)
    take_over(LOSSES, agent)
    if alone and {agent.trunk, agent.target_trunk} <= taken:
        leave_views_apart(agent)
    return taken


def leave_views_apart(agent: Agent) -> None:
    """Hand views to the trunk as they lie, if it takes them so: nothing else looks at them."""
    from svea.kernels.vit import FusedViT

    if all(isinstance(t.forward, FusedTrunk | FusedViT) for t in (agent.trunk, agent.target_trunk)):
        agent.view_maker.join = tuple


# Views --------------------------------------------------------------------------------------------


def _conv(x: Tensor, *, weight: Tensor) -> Tensor:
    from svea.kernels.random_convolution import random_convolution

    return random_convolution(x, weight)


def _shift(x: Tensor, *, corner: Tensor, pad: int) -> Tensor:
    return _windows(x, corner, x.shape[2], x.shape[3], pad)


def _crop(x: Tensor, *, corner: Tensor, size: int) -> Tensor:
    return _windows(x, corner, size, size, 0)


def _windows(x: Tensor, corner: Tensor, height: int, width: int, pad: int) -> Tensor:
    """Windows; bytes become pixels in the same pass."""
    from svea.kernels.windows import windows

    def cut(images: Tensor, dtype: torch.dtype) -> Tensor:
        return windows(images, corner, height, width, pad, dtype)

    return cut(x, x.dtype) if x.is_floating_point() else views.pixels(x, cut)


def _overlay_drift(
    x: Tensor, *, picture: Tensor, speed: Tensor, margin: int, weight: float
) -> Tensor:
    from svea.kernels.windows import mixed_drifting

    return mixed_drifting(x, picture, speed, margin, weight)


AUGMENTATIONS: dict[str, Callable[..., Tensor]] = {
    "conv": _conv, "shift": _shift, "crop": _crop, "overlay_drift": _overlay_drift,
}  # fmt: skip


class WindowsOfPixels(Augmentation):
    """A shift or a crop whose kernel makes pixels of bytes in the same pass."""

    def apply(self, x: Tensor, draw: dict[str, Any]) -> Tensor:
        """Inside the surrounding autocast region, which others leave: it says what pixels are.

        In float32 they would be converted for every pass of a network, 16 us of an H200 each.
        """
        with torch.no_grad():
            return self.function(x, **draw)


def fast_augmentation(augment: Augmentation) -> Augmentation:
    """The augmentation by kernels, where there are some; its draws stay the same."""
    fast = replace(augment, function=AUGMENTATIONS.get(augment.name, augment.function))
    if fast.function in (_shift, _crop):
        return WindowsOfPixels(**vars(fast))
    images = fast.parameters.get("images")
    return fast.bind(images=fast_pictures(images)) if isinstance(images, ImageBank) else fast


def fast_pictures(bank: ImageBank) -> Pictures:
    """The pictures of a bank, resized by our own kernel, unless that does not work on this GPU.

    It adds up in float32, the bank itself in float16: one number in twenty comes out at the next
    level of 255.
    """
    try:
        from svea.kernels import pictures

        fast = replace(bank, place=compiled(place_crops), resize=pictures.resize)
        pictures.check(fast)
    except Exception as error:  # whatever a compiler or a driver may raise
        slow = f"overlay's pictures are resized as products of matrices and take longer: {error}"
        warnings.warn(slow, stacklevel=2)
        return bank
    return fast


def pixels(images: Tensor) -> Tensor:
    """`views.pixels` by a kernel, of what another has not made pixels of already."""
    from svea.kernels.windows import scaled

    return images if images.is_floating_point() else views.pixels(images, scaled)
