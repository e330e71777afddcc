"""The CNN's convolutions in CUDA (trunk.cu), for GPUs whose multiprocessors hold a whole picture.

A forward pass is three launches and a backward pass four, where a layer at a time takes 13 and 25
(convolutions.py, which all other GPUs use). docs/notes/speed.md has the timings.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.grad import conv2d_input

from svea.networks.cnn import CNN

SOURCES = [Path(__file__).with_name(name) for name in ("tensor_cores.cu", "trunk.cu")]
FILTERS, PIXEL = 32, 64  # bytes of a pixel: 32 channels in bfloat16
WEIGHTS, FIRST_SUMS = FILTERS * FILTERS * 9, FILTERS * 16 * 9  # the image's channels filled up
FIRST_BLOCKS = 264  # that share the first layer's strips: two for each of an H200's multiprocessors
FIRST_ROWS, GRADIENT_ROWS = 6, 8  # output rows that a block works on at once
STAGES = 4  # strips of the weight gradient in shared memory, most of them on their way
CHAIN_THREADS, GRADIENT_THREADS = 256, 384
FIRST_THREADS, FIRST_GRADIENT_THREADS = 256, 192

Launch = Callable[..., None]
"""launch(kernel, (blocks, rows of blocks), threads, bytes of shared memory, *arguments)"""


class FusedTrunk:
    """A CNN's forward pass by these kernels: set as its ``forward``, nothing else changes."""

    def __init__(self, network: CNN, launch: Launch | None = None, blocks: int = 0) -> None:
        """Compile the kernels for a network.

        Args:
            network: a CNN that `fits`.
            launch: runs kernels, in place of the GPU that the network lies on.
            blocks: that the weight gradient is shared among; one per multiprocessor by default.
        """
        self.network = network
        convolutions = convolutions_of(network)
        self.parameters: list[Tensor] = []
        for layer in convolutions:
            assert layer.bias is not None
            self.parameters += [layer.weight, layer.bias]
        self.channels, self.image_side, _ = network.input_shape
        self.layers = len(convolutions)
        self.relu_last = network.drqv2
        first = (self.image_side - 3) // 2 + 1
        self.sides = [first - 2 * layer for layer in range(self.layers)]  # after each layer
        device = self.parameters[0].device
        if launch is None:
            from svea.speed.kernels import nvrtc

            properties = torch.cuda.get_device_properties(device)
            blocks = properties.multi_processor_count
            launch = nvrtc.Kernels(SOURCES, self.macros(), device)
        self.launch = launch
        shares, ranges = shared_out(self.sides, blocks)
        self.shares = torch.tensor(shares, dtype=torch.int32, device=device)
        self.ranges = torch.tensor(ranges, dtype=torch.int32, device=device)
        self._addresses: list[int] = []
        self._pointers = self.shares

    @staticmethod
    def fits(network: nn.Module) -> bool:
        """Whether the kernels are made for this network and the GPU that it lies on."""
        right = isinstance(network, CNN) and has_right_shape(network)
        on_gpu = next(network.parameters()).device.type == "cuda"
        return right and on_gpu and not FusedTrunk.obstacle(network)

    @staticmethod
    def obstacle(network: nn.Module) -> str:
        """What a GPU has too little of for a network that would fit; as half a sentence."""
        device = next(network.parameters()).device
        if not (isinstance(network, CNN) and has_right_shape(network) and device.type == "cuda"):
            return ""
        properties: Any = torch.cuda.get_device_properties(device)
        if (properties.major, properties.minor) < (9, 0):
            return f"compute capability {properties.major}.{properties.minor}, not 9.0 or above"
        side = (network.input_shape[1] - 3) // 2 + 1
        needed = max(chain_memory(side), gradient_memory(side))
        room = properties.shared_memory_per_block_optin
        if needed > room:
            return f"{room // 1024} KB of shared memory to a block, not {-(-needed // 1024)}"
        return ""

    def macros(self) -> dict[str, int]:
        """What the source is compiled for."""
        return {
            "LAYERS": self.layers,
            "SIDE": self.image_side,
            "CHANNELS": self.channels,
            "RELU_LAST": int(self.relu_last),
            "FIRST_ROWS": FIRST_ROWS,
            "GRADIENT_ROWS": GRADIENT_ROWS,
            "STAGES": STAGES,
            "CHAIN_THREADS": CHAIN_THREADS,
            "GRADIENT_THREADS": GRADIENT_THREADS,
            "FIRST_THREADS": FIRST_THREADS,
            "FIRST_GRADIENT_THREADS": FIRST_GRADIENT_THREADS,
        }

    def pixels(self, layers: int) -> int:
        """Bytes of an image's pixels after the first so many layers, all together."""
        return sum(PIXEL * side * side for side in self.sides[:layers])

    def pointers(self) -> Tensor:
        """Where the parameters lie, for the device; they stay there while a graph is replayed."""
        addresses = [parameter.data_ptr() for parameter in self.parameters]
        if addresses != self._addresses:
            self._addresses = addresses
            self._pointers = torch.tensor(addresses, device=self.parameters[0].device)
        return self._pointers

    def __call__(self, images: Tensor | tuple[Tensor, ...]) -> Tensor:
        """(B, C, H, W) in [0, 1], or several of them, one after the other -> (B, features)."""
        parts = images if isinstance(images, tuple) else (images,)
        if len(parts) > 2 or (len(parts) > 1 and any(part.requires_grad for part in parts)):
            parts = (torch.cat(parts),)
        if not torch.is_autocast_enabled(parts[0].device.type):  # full precision: the library's
            return CNN.forward(self.network, torch.cat(parts) if len(parts) > 1 else parts[0])
        if self.network.centre:
            parts = tuple(part - self.network.centre for part in parts)
        one, *more = (part.to(torch.bfloat16).contiguous() for part in parts)
        keep = torch.is_grad_enabled() and any(p.requires_grad for p in self.parameters)
        return _Trunk.apply(self, keep, one, more[0] if more else None, *self.parameters)

    def forward(
        self, images: Tensor, others: Tensor | None, keep: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Features, pixels after every layer, weights for the way back.

        The last two are just the first layer's, and empty, unless they are to be kept.
        """
        batch, device, side = count(images, others), images.device, self.sides[0]
        forward = torch.empty((9 + 18 * (self.layers - 1)) * 256, dtype=torch.int32, device=device)
        numbers = 18 * (self.layers - 1) * 256 if keep else 0  # of nothing the address is 0
        turned = torch.empty(numbers, dtype=torch.int32, device=device)
        biases = torch.empty(self.layers * FILTERS, device=device)
        self.launch("pack", (18, self.layers), 256, 0, self.pointers(), forward, turned, biases)
        stride = self.kept_bytes() if keep else self.pixels(1)
        hidden = torch.empty(batch * stride, dtype=torch.uint8, device=device)
        self.launch(
            "first", (FIRST_BLOCKS, 1), FIRST_THREADS, self.strip_bytes(),
            images, at(others), len(images), forward, biases, hidden, stride, batch,
        )  # fmt: skip
        features = torch.empty(
            (batch, FILTERS * self.sides[-1] ** 2), dtype=torch.bfloat16, device=device
        )
        self.launch(
            "forward", (batch, 1), CHAIN_THREADS, chain_memory(side),
            hidden, stride, forward, biases, features, int(keep),
        )  # fmt: skip
        return features, hidden, turned

    def backward(
        self,
        gradient: Tensor,
        images: Tensor,
        others: Tensor | None,
        hidden: Tensor,
        turned: Tensor,
        first: Tensor,
        of_images: bool = False,
    ) -> list[Tensor | None]:
        """The gradients of the images, if asked for, and of all parameters, in their order."""
        batch, device, side = count(images, others), images.device, self.sides[0]
        stride, all_pixels = self.kept_bytes(), self.pixels(self.layers)
        bias_sums = torch.empty(batch * self.layers * FILTERS, device=device)
        gradients = torch.empty(batch * all_pixels, dtype=torch.uint8, device=device)
        self.launch(
            "backward", (batch, 1), CHAIN_THREADS, chain_memory(side),
            gradient.to(torch.bfloat16).contiguous(), hidden, stride, turned, gradients, all_pixels,
            bias_sums,
        )  # fmt: skip
        blocks = len(self.shares)
        partial = torch.empty(blocks * WEIGHTS, device=device)
        self.launch(
            "weight_gradient", (blocks, 1), GRADIENT_THREADS, gradient_memory(side),
            hidden, stride, gradients, all_pixels, batch, self.shares, partial,
        )  # fmt: skip
        first_partial = torch.empty(FIRST_BLOCKS * FIRST_SUMS, device=device)
        strip = self.strip_bytes() + PIXEL * (2 * FIRST_ROWS * side + 1)
        memory = max(strip, FIRST_GRADIENT_THREADS // 96 * 4 * FIRST_SUMS)  # three warps share sums
        self.launch(
            "first_weight_gradient", (FIRST_BLOCKS, 1), FIRST_GRADIENT_THREADS, memory,
            images, at(others), len(images), gradients, all_pixels, batch, first_partial,
        )  # fmt: skip
        sizes = [weight.numel() + FILTERS for weight in self.parameters[::2]]
        flat = torch.empty(sum(sizes), device=device)
        self.launch(
            "total", (WEIGHTS // 256 + 1, self.layers), 256, 4 * 256,
            first_partial, partial, self.ranges, bias_sums, batch, flat,
        )  # fmt: skip
        found: list[Tensor | None] = [None]
        if of_images:  # a masker stands before the network: the library computes
            at_first = self.at_first_layer(gradients.view(batch, all_pixels))
            found = [conv2d_input(images.shape, first.to(images.dtype), at_first, 2)]
        for numbers, weight in zip(flat.split(sizes), self.parameters[::2], strict=True):
            found += [numbers[:-FILTERS].view(weight.shape), numbers[-FILTERS:]]
        return found

    def at_first_layer(self, gradients: Tensor) -> Tensor:
        """The gradients at the first layer's output, (B, 32, side, side), of all layers' bytes.

        A pixel's channels lie in four groups of eight, whose places are swapped pixel by pixel
        (`chunk` in trunk.cu).
        """
        side = self.sides[0]
        pixels = torch.arange(side**2, device=gradients.device)[:, None]
        places = torch.arange(4, device=gradients.device) ^ (pixels >> 1 & 3)
        groups = gradients[:, : self.pixels(1)].view(torch.bfloat16).unflatten(1, (-1, 4, 8))
        return groups[:, pixels, places].flatten(2).mT.unflatten(2, (side, side))

    def kept_bytes(self) -> int:
        """Of an image: pixels after all layers that clip."""
        return self.pixels(self.layers - 1 + self.relu_last)

    def strip_bytes(self) -> int:
        """Shared memory for an image's rows that make a strip of the first layer's output.

        As pixels of 16 channels, and as they come.
        """
        pixels = (2 * FIRST_ROWS + 1) * self.image_side
        return pixels * 32 + -(-pixels * 2 * self.channels // 64) * 64


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
        features, hidden, turned = trunk.forward(images, others, keep)
        ctx.trunk = trunk
        if keep:
            ctx.save_for_backward(images, others, hidden, turned, parameters[0])
        return features

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:  # type: ignore[override]
        of_images = ctx.needs_input_grad[2]
        found, *rest = ctx.trunk.backward(gradient, *ctx.saved_tensors, of_images)
        return None, None, found, None, *rest


def count(images: Tensor, others: Tensor | None) -> int:
    """Of all images."""
    return len(images) + (0 if others is None else len(others))


def at(tensor: Tensor | None) -> Tensor | int:
    """A tensor for a kernel; of nothing the address is 0."""
    return 0 if tensor is None else tensor


def convolutions_of(network: CNN) -> list[nn.Conv2d]:
    """A network's layers."""
    return [layer for layer in network.layers if isinstance(layer, nn.Conv2d)]


def has_right_shape(network: CNN) -> bool:
    """Two layers or more of 32 filters, the first alone with stride 2, on even images."""
    layers = convolutions_of(network)
    channels, side, _ = network.input_shape
    strides = [int(layer.stride[0]) for layer in layers]
    filters = {layer.out_channels for layer in layers}
    right = len(layers) > 1 and strides == [2] + [1] * (len(layers) - 1) and filters == {FILTERS}
    return right and channels <= 16 and side % 2 == 0


def chain_memory(side: int) -> int:
    """Shared memory of a picture after the first and after the second layer, and what goes with it.

    Backward that is 32 pixels for each warp, one of nothing, and twice a sum for each thread.
    Forward, where the next layer's weights lie, is 48 bytes less.
    """
    return PIXEL * (side**2 + (side - 2) ** 2 + CHAIN_THREADS + 1) + 2 * 4 * CHAIN_THREADS


def gradient_memory(side: int) -> int:
    """Shared memory of the weight gradient: strips, or sums, which three warps have together."""
    stage = PIXEL * ((GRADIENT_ROWS + 2) * side + GRADIENT_ROWS * (side - 2))
    return max(STAGES * (stage + 16) + PIXEL, GRADIENT_THREADS // 96 * 4 * WEIGHTS)


def shared_out(sides: list[int], blocks: int) -> tuple[list[list[int]], list[list[int]]]:
    """Which layer a block works on, from which strip and in which steps; each layer's blocks.

    Layers get blocks in proportion to their pixels, each at least one.
    """
    layers = range(2, len(sides) + 1)
    work = {layer: sides[layer - 1] ** 2 for layer in layers}
    counts = dict.fromkeys(layers, 1)
    while sum(counts.values()) < blocks:  # one more for the kernel whose blocks have most to do
        counts[max(layers, key=lambda layer: work[layer] / counts[layer])] += 1
    shares: list[list[int]] = []
    ranges = [[0, FIRST_BLOCKS]]
    for layer in layers:
        ranges.append([len(shares), len(shares) + counts[layer]])
        shares += [[layer, number, counts[layer]] for number in range(counts[layer])]
    return shares, ranges
