"""An encoder's convolutions in CUDA (chain.py), in place of its forward pass."""

from __future__ import annotations

import warnings
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.grad import conv2d_input

from svea.kernels.chain import (
    Chain,
    Kept,
    Launch,
    chain_memory,
    convolutions_of,
    gradient_memory,
    wide_memory,
)
from svea.networks.encoders import CNN
from svea.networks.parts import FrameCNN

FILTERS, THIN_FILTERS, MOST_FRAMES = 32, 16, 3


class FusedTrunk:
    """A CNN's forward pass by these kernels: set as its ``forward``, nothing else changes."""

    chain: Chain  # that sees the images

    def __init__(
        self,
        network: CNN,
        launch: Launch | None = None,
        blocks: int = 0,
        wide: bool | None = None,
    ) -> None:
        """Compile the kernels for a network.

        Args:
            network: a CNN that `fits`.
            launch: runs kernels, in place of the GPU that the network lies on.
            blocks: that the weight gradient is shared among; one per multiprocessor by default.
            wide: whether by products of four warps; where the GPU has them by default.
        """
        self.network: CNN | FrameCNN = network
        self.centre = network.centre
        self.chain = Chain(network, launch, blocks, wide=wide)
        self.parameters = self.chain.parameters

    @staticmethod
    def fits(network: nn.Module) -> bool:
        """Whether the kernels are made for this network and the GPU that it lies on."""
        on_gpu = next(network.parameters()).device.type == "cuda"
        return has_right_shape(network) and on_gpu and not FusedTrunk.obstacle(network)

    @staticmethod
    def obstacle(network: nn.Module) -> str:
        """What a GPU has too little of for a network that would fit; as half a sentence."""
        device = next(network.parameters()).device
        if not has_right_shape(network) or device.type != "cuda":
            return ""
        properties: Any = torch.cuda.get_device_properties(device)
        if (properties.major, properties.minor) < (9, 0):
            return f"compute capability {properties.major}.{properties.minor}, not 9.0 or above"
        needed, room = memory_for(network), properties.shared_memory_per_block_optin
        if needed > room:
            return f"{room // 1024} KB of shared memory to a block, not {-(-needed // 1024)}"
        return ""

    def __call__(self, images: Tensor | tuple[Tensor, ...]) -> Tensor:
        """(B, C, H, W) in [0, 1], or several of them, one after the other -> (B, features)."""
        parts = images if isinstance(images, tuple) else (images,)
        if len(parts) > 2 or (len(parts) > 1 and any(part.requires_grad for part in parts)):
            parts = (torch.cat(parts),)
        if not torch.is_autocast_enabled(parts[0].device.type):  # full precision: the library's
            together = torch.cat(parts) if len(parts) > 1 else parts[0]
            return type(self.network).forward(self.network, together)  # type: ignore[arg-type]
        if self.centre:
            parts = tuple(part - self.centre for part in parts)
        one, *more = (part.to(torch.bfloat16).contiguous() for part in parts)
        keep = torch.is_grad_enabled() and any(p.requires_grad for p in self.parameters)
        return _Trunk.apply(self, keep, one, more[0] if more else None, *self.parameters)

    def error(self) -> float:
        """How far features and gradients are off from the library's, at most.

        On a few pictures of noise, and with the library's pixels, weights and gradients rounded as
        the kernels round them: another order of sums alone makes it a few thousandths for features
        and up to 0.02 for gradients.
        """
        device = self.parameters[0].device
        generator = torch.Generator(device).manual_seed(0)
        images = torch.rand(3, *self.network.input_shape, device=device, generator=generator)
        weights = [p for p in self.parameters if p.requires_grad]
        with torch.enable_grad(), torch.autocast(device.type, torch.bfloat16):
            found = [self(images)]
        with torch.enable_grad(), torch.autocast(device.type, enabled=False):
            wanted = [self.by_the_library(images)]
        if weights:
            slopes = torch.randn(wanted[0].shape, device=device, generator=generator).bfloat16()
            found += torch.autograd.grad(found[0], weights, slopes)
            wanted += torch.autograd.grad(wanted[0], weights, slopes.float())
        pairs = [(a.detach().float(), b.detach()) for a, b in zip(found, wanted, strict=True)]
        errors = [(a - b).norm() / (b.norm() + 1e-12) for a, b in pairs]
        return float(torch.stack(errors).max())  # NaN if one of them is

    def by_the_library(self, images: Tensor) -> Tensor:
        """Features in float32, rounded to bfloat16 where the kernels do so."""
        assert isinstance(self.network, CNN)
        return rounded_layers(self.network, _Rounded.apply(images - self.centre)).flatten(1)

    def chains(self) -> list[Chain]:
        """All kernels, in the order of layers."""
        return [self.chain]

    def forward(
        self, images: Tensor, others: Tensor | None, keep: bool
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Features, and what a backward pass needs of them besides the images."""
        packed = self.chain.pack(keep)
        entry = self.chain.first_layer(images, others, packed)
        return self.chain.other_layers(entry, packed, keep)

    def backward(
        self, gradient: Tensor, images: Tensor, others: Tensor | None, *kept: Tensor
    ) -> tuple[Tensor, list[Tensor]]:
        """The gradients at the first layer's output, and of all parameters, in their order."""
        found = self.chain.backward(gradient, Kept(*kept), images, others)
        return found.entry, found.parameters

    def of_images(self, gradient: Tensor, images: Tensor, weight: Tensor) -> Tensor:
        """The gradient of images from that at the first layer's output, by the library.

        A masker that stands before the network asks for it.
        """
        channels = self.chain.channels  # of the images, or of each of their frames
        shape = (images.numel() // (channels * images.shape[2] ** 2), channels, *images.shape[2:])
        at_first = self.chain.as_maps(gradient)
        return conv2d_input(shape, weight.to(images.dtype), at_first, 2).view(images.shape)


MOST_ERROR = 0.05
_checked: set[tuple[object, ...]] = set()


def fused_trunk(network: CNN | FrameCNN) -> FusedTrunk:
    """The kernels for a network that they fit, where they are right; wide products likewise.

    A process compares each kind of them with the library once, before the first update.
    """
    from svea.kernels import nvrtc

    if isinstance(network, FrameCNN):
        fused: FusedTrunk = FusedFrames(network)
    else:
        fused = FusedTrunk(network)
    wide = any(chain.wide for chain in fused.chains())
    if wide and not (error := error_of(fused)) <= MOST_ERROR:
        slow = f"wide products are off by {error:.0%} on this GPU: convolutions take longer"
        warnings.warn(slow, stacklevel=2)
        fused = type(fused)(network, wide=False)  # type: ignore[arg-type]  # of its own kind
    if not (error := error_of(fused)) <= MOST_ERROR:
        raise nvrtc.BuildError(f"they are off by {error:.0%} on this GPU")
    return fused


def error_of(fused: FusedTrunk) -> float:
    """How far kernels are off; 0 if it is known that they are right."""
    of_weights = any(p.requires_grad for p in fused.parameters)
    macros = (tuple(chain.macros().items()) for chain in fused.chains())
    kind = (*macros, of_weights, fused.parameters[0].device)
    error = 0.0 if kind in _checked else fused.error()
    if error <= MOST_ERROR:
        _checked.add(kind)
    return error


class FusedFrames(FusedTrunk):
    """The same for the frame-wise encoder: a chain for single frames, and one for all together.

    Three frames of 16 channels are what the second starts from: in shared memory they are as large
    as the first layer of the CNN, and stay pictures of their own.
    """

    def __init__(
        self,
        network: FrameCNN,
        launches: tuple[Launch, Launch] | None = None,
        blocks: int = 0,
        wide: bool | None = None,
    ) -> None:
        """Compile the kernels for a network; the arguments are those of `FusedTrunk`."""
        self.network, self.centre = network, network.single.centre
        single, joint = launches or (None, None)
        self.frames = network.input_shape[0] // 3
        self.chain = Chain(network.single, single, blocks, inner=True)
        self.joint = Chain(network.joint, joint, blocks, planes=self.frames, wide=wide)
        self.parameters = self.chain.parameters + self.joint.parameters

    def forward(
        self, images: Tensor, others: Tensor | None, keep: bool
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Features, and what a backward pass needs of them besides the images."""
        packed, further = self.chain.pack(keep), self.joint.pack(keep)
        entry = self.chain.first_layer(
            self.apart(images), None if others is None else self.apart(others), packed
        )
        pictures, kept = self.chain.other_layers(entry, packed, keep)
        features, more = self.joint.other_layers(pictures, further, keep)
        return features, (*kept, *more)

    def backward(
        self, gradient: Tensor, images: Tensor, others: Tensor | None, *kept: Tensor
    ) -> tuple[Tensor, list[Tensor]]:
        """The gradients at the first layer's output, and of all parameters, in their order."""
        joint = self.joint.backward(gradient, Kept(*kept[3:]))
        of_pictures = joint.entry.view(torch.bfloat16)
        others = None if others is None else self.apart(others)
        found = self.chain.backward(
            of_pictures, Kept(*kept[:3]), self.apart(images), others, joint.entry_sums
        )
        return found.entry, found.parameters + joint.parameters

    def by_the_library(self, images: Tensor) -> Tensor:
        """Features in float32, rounded to bfloat16 where the kernels do so."""
        assert isinstance(self.network, FrameCNN)
        frames = self.apart(_Rounded.apply(images - self.centre))
        maps = rounded_layers(self.network.single, frames, relu_last=True)
        together = maps.reshape(-1, *self.network.joint.input_shape)
        return rounded_layers(self.network.joint, together).flatten(1)

    def chains(self) -> list[Chain]:
        """All kernels, in the order of layers."""
        return [self.chain, self.joint]

    def apart(self, images: Tensor) -> Tensor:
        """Every frame as an image of its own."""
        return images.view(-1, 3, *images.shape[2:])


def rounded_layers(network: CNN, pixels: Tensor, relu_last: bool = False) -> Tensor:
    """A CNN's layers by the library in float32, weights and pixels rounded to bfloat16."""
    layers = convolutions_of(network)
    for number, layer in enumerate(layers, 1):
        weight = _Rounded.apply(layer.weight)
        pixels = F.conv2d(pixels, weight, layer.bias, layer.stride)  # type: ignore[arg-type]
        if number < len(layers) or relu_last or network.drqv2:
            pixels = pixels.relu()
        pixels = _Rounded.apply(pixels)
    return pixels


class _Rounded(torch.autograd.Function):
    """bfloat16's rounding of numbers and of their gradient, which both stay float32."""

    @staticmethod
    def forward(ctx: Any, numbers: Tensor) -> Tensor:
        return numbers.bfloat16().float()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:  # type: ignore[override]
        return gradient.bfloat16().float()


class _Trunk(torch.autograd.Function):
    """All layers at once; activations are bfloat16, sums float32."""

    @staticmethod
    def forward(
        ctx: Any,
        trunk: FusedTrunk,
        keep: bool,
        images: Tensor,
        others: Tensor | None,
        *parameters: Tensor,
    ) -> Tensor:
        features, kept = trunk.forward(images, others, keep)
        ctx.trunk = trunk
        if keep:
            ctx.save_for_backward(parameters[0], images, others, *kept)
        return features

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:  # type: ignore[override]
        weight, images, *saved = ctx.saved_tensors
        at_first, found = ctx.trunk.backward(gradient, images, *saved)
        of_images = None
        if ctx.needs_input_grad[2]:
            of_images = ctx.trunk.of_images(at_first, images, weight)
        return None, None, of_images, None, *found


def has_right_shape(network: nn.Module) -> bool:
    """Two layers or more of 32 filters, the first alone with stride 2, on even images.

    Or the frame-wise encoder with 16 filters for up to three frames, before 32 for all.
    """
    if isinstance(network, FrameCNN):
        channels, side, _ = network.input_shape
        single, joint = convolutions_of(network.single), convolutions_of(network.joint)
        right = suits(single, THIN_FILTERS, 2) and suits(joint, FILTERS, 1)
        return right and side % 2 == 0 and 3 <= channels <= 3 * MOST_FRAMES
    if not isinstance(network, CNN):
        return False
    channels, side, _ = network.input_shape
    return suits(convolutions_of(network), FILTERS, 2) and channels <= 16 and side % 2 == 0


def suits(layers: list[nn.Conv2d], filters: int, first_stride: int) -> bool:
    """Two layers or more, each with so many filters, all but the first with stride 1."""
    strides = [int(layer.stride[0]) for layer in layers]
    right = {layer.out_channels for layer in layers} == {filters}
    return right and len(layers) > 1 and strides == [first_stride] + [1] * (len(layers) - 1)


def memory_for(network: nn.Module) -> int:
    """The most shared memory that a block of a network's kernels needs."""
    if isinstance(network, FrameCNN):
        frames, side = network.input_shape[0] // 3, network.joint.input_shape[1]
        first = (network.input_shape[1] - 3) // 2 + 1
        return max(
            chain_memory(first, THIN_FILTERS),
            gradient_memory(first, THIN_FILTERS),
            chain_memory(side, FILTERS, frames),
            gradient_memory(side),
        )
    assert isinstance(network, CNN)
    side = (network.input_shape[1] - 3) // 2 + 1
    return max(chain_memory(side), wide_memory(side), gradient_memory(side))
