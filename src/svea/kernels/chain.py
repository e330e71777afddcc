"""A chain of convolutions in CUDA (trunk.cu), for GPUs whose multiprocessors hold a whole picture.

A forward pass is three launches and a backward pass four, where a layer at a time takes 13 and 25
(convolutions.py, which all other GPUs use). docs/lab-book.md has the timings.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from svea.networks.encoders import CNN

SOURCES = [
    Path(__file__).with_name(name)
    for name in ("tensor_cores.cu", "layers.cu", "trunk.cu", "wide.cu", "trunk_gradients.cu")
]
THIN = 32  # bytes of a pixel of 16 channels in bfloat16
FIRST_BLOCKS = 264  # that share the first layer's strips: two for each of an H200's multiprocessors
GRADIENT_ROWS = 8  # output rows that a block works on at once
RAW_STRIPS = 2  # of the first layer's input on their way
STAGES = 4  # strips of the weight gradient in shared memory, most of them on their way
CHAIN_THREADS, GRADIENT_THREADS = 256, 384
FIRST_THREADS, FIRST_GRADIENT_THREADS = 256, 192
TOTAL_THREADS = 256
PAD = 2  # columns of nothing to the right of a wide chain's gradients

Launch = Callable[..., None]
"""launch(kernel, (blocks, rows of blocks), threads, bytes of shared memory, *arguments)"""


class Packed(NamedTuple):
    """Weights as the kernels load them: for the way forward, and back; and biases."""

    forward: Tensor
    turned: Tensor
    biases: Tensor


class Kept(NamedTuple):
    """What a backward pass needs: the first layer's pixels, the others', weights for the way."""

    entry: Tensor
    hidden: Tensor
    turned: Tensor


class Gradients(NamedTuple):
    """At the first layer's output, with its sums over an image, and of all parameters."""

    entry: Tensor
    entry_sums: Tensor
    parameters: list[Tensor]


class Chain:
    """A CNN's layers, or those of a part of one that sees a stack's frames one by one."""

    def __init__(
        self,
        network: CNN,
        launch: Launch | None = None,
        blocks: int = 0,
        *,
        planes: int = 0,
        inner: bool = False,
        wide: bool | None = None,
    ) -> None:
        """Compile the kernels.

        Args:
            network: convolutions that have the right shape (`trunk.has_right_shape`).
            launch: runs kernels, in place of the GPU that the network lies on.
            blocks: that the weight gradient is shared among; one per multiprocessor by default.
            planes: how many pictures of 16 channels the network starts from, not from an image.
            inner: whether another chain continues, after a ReLU.
            wide: whether products of four warps make the layers (wide.cu); where the GPU has them
                by default. On the way back of `planes` they do not.
        """
        convolutions = convolutions_of(network)
        self.parameters: list[Tensor] = []
        for layer in convolutions:
            assert layer.bias is not None
            self.parameters += [layer.weight, layer.bias]
        self.filters = convolutions[0].out_channels
        self.pixel = 2 * self.filters
        self.planes, self.inner, self.relu_last = planes, inner, network.drqv2 or inner
        self.channels, first, _ = network.input_shape
        if not planes:
            self.image_side, first = first, (first - 3) // 2 + 1
        else:  # as if its pictures were a first layer's
            self.channels, self.image_side = 3, 2 * first + 2
        self.layers = len(convolutions) + bool(planes)
        self.sides = [first - 2 * layer for layer in range(self.layers)]  # after each layer
        self.first_rows = 21 if self.channels <= 4 and self.filters == 16 else 6
        # Weights that a block adds up: frames have few, or few parts of each, which threads share.
        self.total_columns = 32 if inner else 128 if planes else TOTAL_THREADS
        device = self.parameters[0].device
        if wide is None:
            wide = has_wide_products(device)
        self.wide = wide and self.filters == 32 and not inner and self.sides[-1] > 1
        self.wide_back = self.wide and not planes
        if launch is None:
            from svea.kernels import nvrtc

            blocks = torch.cuda.get_device_properties(device).multi_processor_count
            blocks *= 32 // self.filters  # that fit into one multiprocessor
            launch = nvrtc.Kernels(SOURCES, self.macros(), device)
        self.launch = launch
        shares, ranges = shared_out(self.sides, blocks, planes)
        self.shares = torch.tensor(shares, dtype=torch.int32, device=device)
        self.ranges = torch.tensor(ranges, dtype=torch.int32, device=device)
        self._addresses: list[int] = []
        self._pointers = self.shares

    def macros(self) -> dict[str, int]:
        """What the source is compiled for."""
        return {
            "LAYERS": self.layers,
            "SIDE": self.image_side,
            "CHANNELS": self.channels,
            "FILTERS": self.filters,
            "RELU_LAST": int(self.relu_last),
            "PLANES": self.planes,
            "INNER": int(self.inner),
            "WIDE": int(self.wide),
            "FIRST_ROWS": self.first_rows,
            "RAW_STRIPS": RAW_STRIPS,
            "GRADIENT_ROWS": GRADIENT_ROWS,
            "STAGES": STAGES,
            "CHAIN_THREADS": CHAIN_THREADS,
            "GRADIENT_THREADS": GRADIENT_THREADS,
            "FIRST_THREADS": FIRST_THREADS,
            "FIRST_GRADIENT_THREADS": FIRST_GRADIENT_THREADS,
            "TOTAL_THREADS": TOTAL_THREADS,
            "TOTAL_COLUMNS": self.total_columns,
        }

    # Forward -----------------------------------------------------------------------------------

    def pack(self, keep: bool) -> Packed:
        """The weights in the kernels' order; for the way back only if that is gone."""
        device, numbers = self.parameters[0].device, [weight.numel() for weight in self.weights()]
        fragments = [self.first_numbers() if not self.planes else numbers[0] // 2]
        fragments += [number // 2 for number in numbers[1:]]
        forward = torch.empty(sum(fragments), dtype=torch.int32, device=device)
        back = sum(fragments[0 if self.planes else 1 :]) if keep else 0  # of nothing: address 0
        turned = torch.empty(back, dtype=torch.int32, device=device)
        biases = torch.empty(len(numbers) * self.filters, device=device)
        grid = -(-max(fragments) // 256), len(numbers)
        self.launch("pack", grid, 256, 0, self.pointers(), forward, turned, biases)
        return Packed(forward, turned, biases)

    def first_layer(self, images: Tensor, others: Tensor | None, packed: Packed) -> Tensor:
        """The first layer's pixels of images that lie in one or two places."""
        batch = count(images, others)
        entry = torch.empty(batch * self.bytes(1), dtype=torch.uint8, device=images.device)
        self.launch(
            "first", (FIRST_BLOCKS, 1), FIRST_THREADS, self.strip_bytes(RAW_STRIPS),
            images, at(others), len(images), packed.forward, packed.biases, entry, batch,
        )  # fmt: skip
        return entry

    def other_layers(self, entry: Tensor, packed: Packed, keep: bool) -> tuple[Tensor, Kept]:
        """Features (pictures, numbers), and what a backward pass needs, if it is to be kept.

        The features of an inner chain are pixels in the kernels' order.
        """
        device, batch = entry.device, entry.nbytes // self.bytes(1)
        stride = self.kept_bytes() if keep else 0
        hidden = torch.empty(batch * stride, dtype=torch.uint8, device=device)
        shape = batch, self.filters * self.sides[-1] ** 2
        features = torch.empty(shape, dtype=torch.bfloat16, device=device)
        self.launch(
            "forward", (batch, 1), CHAIN_THREADS, self.chain_memory(),
            entry, hidden, stride, packed.forward, packed.biases, features, int(keep),
        )  # fmt: skip
        return features, Kept(entry, hidden, packed.turned)

    # Backward ----------------------------------------------------------------------------------

    def backward(
        self,
        gradient: Tensor,
        kept: Kept,
        images: Tensor | None = None,
        others: Tensor | None = None,
        last_sums: Tensor | None = None,
    ) -> Gradients:
        """The gradients of all parameters, and at the first layer's output.

        Args:
            gradient: of the features.
            kept: by the forward pass.
            images: that the first layer saw.
            others: a second part of them.
            last_sums: an inner chain's: the gradient's sums over an image.
        """
        batch, device = kept.entry.nbytes // self.bytes(1), gradient.device
        gradient = gradient.to(torch.bfloat16).contiguous()
        stride, all_pixels = self.kept_bytes(), self.gradient_bytes()
        bias_sums = torch.empty(batch * self.layers * self.filters, device=device)
        entry_sums = torch.empty(batch * self.planes * 16, device=device)
        entry = torch.empty_like(kept.entry)
        gradients = torch.empty(batch * all_pixels, dtype=torch.uint8, device=device)
        self.launch(
            "backward", (batch, 1), CHAIN_THREADS, self.chain_memory(),
            gradient, kept.entry, kept.hidden, stride, kept.turned, entry, gradients, all_pixels,
            entry_sums, bias_sums,
        )  # fmt: skip
        blocks, weights = len(self.shares), 9 * self.filters**2
        partial = torch.empty(blocks * weights, device=device)
        self.launch(
            "weight_gradient", (blocks, 1), GRADIENT_THREADS, self.gradient_memory(),
            kept.entry, kept.hidden, stride, gradients, all_pixels, gradient, batch, self.shares,
            partial,
        )  # fmt: skip
        first_partial = self.first_gradient(entry, images, others) if images is not None else 0
        sizes = [weight.numel() + self.filters for weight in self.weights()]
        flat = torch.empty(sum(sizes), device=device)
        numbers = max(weights, 0 if self.planes else self.first_sums())
        grid = -(-numbers // self.total_columns) + 1, len(self.ranges)
        self.launch(
            "total", grid, TOTAL_THREADS, 4 * TOTAL_THREADS,
            first_partial, partial, self.ranges, bias_sums, at(last_sums), batch, flat,
        )  # fmt: skip
        found: list[Tensor] = []
        for numbers, weight in zip(flat.split(sizes), self.weights(), strict=True):
            found += [numbers[: -self.filters].view(weight.shape), numbers[-self.filters :]]
        return Gradients(entry, entry_sums, found)

    def first_gradient(self, gradient: Tensor, images: Tensor, others: Tensor | None) -> Tensor:
        """Partial sums of the first layer's weights."""
        sums = self.first_sums()
        partial = torch.empty(FIRST_BLOCKS * sums, device=gradient.device)
        strip = self.strip_bytes() + 2 * self.pixel * (self.first_rows * self.sides[0] + 1)
        memory = max(strip, FIRST_GRADIENT_THREADS // 96 * 4 * sums)  # three warps share sums
        self.launch(
            "first_weight_gradient", (FIRST_BLOCKS, 1), FIRST_GRADIENT_THREADS, memory,
            images, at(others), len(images), gradient, count(images, others), partial,
        )  # fmt: skip
        return partial

    def as_maps(self, pixels: Tensor) -> Tensor:
        """The first layer's pixels, or their gradient, as (pictures, filters, side, side).

        Eight channels lie together, a plane of pixels for each eight (layers.cu).
        """
        side, groups = self.sides[0], self.filters // 8
        planes = pixels.view(torch.bfloat16).view(-1, groups, side**2, 8)
        return planes.mT.reshape(-1, self.filters, side, side)

    # Sizes -------------------------------------------------------------------------------------

    def weights(self) -> list[Tensor]:
        """Of all layers."""
        return self.parameters[::2]

    def first_sums(self) -> int:
        """Sums for the first layer's weights, with the image's channels filled up."""
        return self.filters * 16 * (3 if self.channels <= 4 else 9)

    def first_numbers(self) -> int:
        """Packed pairs of the first layer's weights."""
        return self.first_sums() // 2

    def bytes(self, layer: int) -> int:
        """Of a picture's pixels after a layer."""
        pixel = THIN * self.planes if self.planes and layer == 1 else self.pixel
        return pixel * self.sides[layer - 1] ** 2

    def kept_bytes(self) -> int:
        """Of a picture: pixels after all layers that clip, except for the first."""
        last = self.layers - 1 + (self.relu_last and not self.inner)
        return sum(map(self.bytes, range(2, last + 1)))

    def gradient_bytes(self) -> int:
        """Of the gradients of a picture after all layers except for the first."""
        pad = PAD if self.wide_back else 0
        return sum(self.pixel * side * (side + pad) for side in self.sides[1:])

    def pointers(self) -> Tensor:
        """Where the parameters lie, for the device; they stay there while a graph is replayed."""
        addresses = [parameter.data_ptr() for parameter in self.parameters]
        if addresses != self._addresses:
            self._addresses = addresses
            self._pointers = torch.tensor(addresses, device=self.parameters[0].device)
        return self._pointers

    def strip_bytes(self, coming: int = 1) -> int:
        """Shared memory for an image's rows that make a strip of the first layer's output.

        As pixels of 4 or 16 channels, and some strips as they come.
        """
        pixels = (2 * self.first_rows + 1) * self.image_side
        turned = pixels * (8 if self.channels <= 4 else 32)
        return turned + coming * (-(-pixels * 2 * self.channels // 64) * 64)

    def chain_memory(self) -> int:
        """Shared memory of a block that takes a picture through the layers."""
        if self.wide_back:
            return wide_memory(self.sides[0])
        return chain_memory(self.sides[0], self.filters, self.planes)

    def gradient_memory(self) -> int:
        """Shared memory of a block that adds up weights' gradients."""
        return gradient_memory(self.sides[0], self.filters, PAD if self.wide_back else 0)


def count(images: Tensor, others: Tensor | None) -> int:
    """Of all images."""
    return len(images) + (0 if others is None else len(others))


def at(tensor: Tensor | None) -> Tensor | int:
    """A tensor for a kernel, or 0, the null pointer, where there is none."""
    return 0 if tensor is None else tensor


def convolutions_of(network: CNN) -> list[nn.Conv2d]:
    """A network's layers."""
    return [layer for layer in network.layers if isinstance(layer, nn.Conv2d)]


def has_wide_products(device: torch.device) -> bool:
    """Whether a GPU has products of four warps (wgmma): compute capability 9.0 alone."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) == (9, 0)


def chain_memory(side: int, filters: int = 32, planes: int = 0) -> int:
    """Shared memory of a picture after the first and after the second layer, and what goes with it.

    Backward that is 32 pixels for each warp, eight channels of nothing, twice a sum for each
    channel and warp, and a barrier. Forward it is the next layer's weights, two barriers, and
    twice eight channels for wide products.
    """
    pixel, warps = 2 * filters, CHAIN_THREADS // 32
    first = max(side**2 * (planes * THIN or pixel), (side - 4) ** 2 * pixel)  # or the third
    sums = 2 * 4 * warps * max(planes * 16, filters)
    back, forward = pixel * CHAIN_THREADS + 16 + sums + 16, 9 * filters**2 * 2 + 16 + 32
    return first + (side - 2) ** 2 * pixel + max(back, forward)


def wide_memory(side: int) -> int:
    """The same for products of four warps: a gradient has a frame of nothing around it.

    Forward it is a layer's weights that need the room.
    """
    pixel, sums = 64, 2 * 4 * (CHAIN_THREADS // 32) * 16
    padded = [(s + 4) * (s + 2) + 2 for s in (side - 2, side - 4)]
    back = pixel * (max(side**2, padded[1]) + padded[0]) + sums
    return max(back, pixel * (side**2 + (side - 2) ** 2) + 9 * 32 * 32 * 2) + 32 + 16


def gradient_memory(side: int, filters: int = 32, pad: int = PAD) -> int:
    """Shared memory of the weight gradient: strips, or sums, which three warps have together."""
    pixel = 2 * filters
    stage = pixel * ((GRADIENT_ROWS + 2) * side + GRADIENT_ROWS * (side - 2 + pad) + 1)
    sums = GRADIENT_THREADS // 96 * 4 * 9 * filters**2
    return max(STAGES * (stage + 16), sums)


def work_of(side: int) -> float:
    """Of a weight gradient: 16 pixels at a time; to start with a strip takes as long as 32."""
    return side**2 / 16 + 2 * -(-side // GRADIENT_ROWS)


def shared_out(
    sides: list[int], blocks: int, planes: int = 0
) -> tuple[list[list[int]], list[list[int]]]:
    """What a block works on (layer, from which strip, in which steps, plane); each task's blocks.

    Layers get blocks in proportion to their work, each at least one; a plane of 16 channels is half
    a layer.
    """
    work = {(2, plane): work_of(sides[1]) / 2 for plane in range(planes)}
    work |= {
        (layer, 0): work_of(sides[layer - 1]) for layer in range(2 + bool(planes), len(sides) + 1)
    }
    counts = dict.fromkeys(work, 1)
    while sum(counts.values()) < blocks:  # one more for the task whose blocks have most to do
        counts[max(work, key=lambda task: work[task] / counts[task])] += 1
    shares: list[list[int]] = []
    ranges = [] if planes else [[0, FIRST_BLOCKS]]
    for task, number in counts.items():
        layer, plane = task
        ranges.append([len(shares), len(shares) + number])
        shares += [[layer, first, number, plane] for first in range(number)]
    return shares, ranges
