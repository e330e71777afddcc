"""The CNN's convolutions as GPU kernels of our own (Triton), for training in low precision.

32 filters are too few for the library's kernels to be at their best, and around each of them stand
others that only add a bias, clip at zero, or convert weights. Here a layer is one kernel forward
(bias and ReLU included) and two backward (input gradient with the ReLU's mask; weight gradient with
the bias's). Pictures are (batch, height, width, channels), every convolution a sum over its nine
taps of (pixels, channels in) x (channels in, channels out). docs/lab-book.md has the timings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn.grad import conv2d_input

from svea.networks.encoders import CNN

PARTS = 88  # partial sums of a weight gradient; with three tap rows two programs per SM of an H200
# Pixels per program, warps and stages of the loads' pipeline, by trial on an H200.
FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT = (128, 4, 2), (128, 4, 3), (128, 4)


@triton.jit
def _channels_last(
    x, y, pixels, PLANE: tl.constexpr, CHANNELS: tl.constexpr, PADDED: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Planes to pixels, filled up with zero channels."""
    p, c = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, PADDED)
    inside = p < pixels
    at = (p // PLANE) * CHANNELS * PLANE + p % PLANE
    there = inside[:, None] & (c < CHANNELS)[None, :]
    values = tl.load(x + at[:, None] + c[None, :] * PLANE, mask=there, other=0.0)
    tl.store(y + p[:, None] * PADDED + c[None, :], values.to(y.dtype.element_ty), inside[:, None])


@triton.jit
def _forward(
    x, weight, bias, y, pixels,
    HI: tl.constexpr, WI: tl.constexpr, HO: tl.constexpr, WO: tl.constexpr,
    STRIDE: tl.constexpr, CIN: tl.constexpr, COUT: tl.constexpr, RELU: tl.constexpr,
    BLOCK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """A block of output pixels: nine products, bias, ReLU."""
    p = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = p < pixels
    image, rest = p // (HO * WO), p % (HO * WO)
    row, column = rest // WO, rest % WO
    corner = ((image * HI + row * STRIDE) * WI + column * STRIDE) * CIN
    i, o = tl.arange(0, CIN), tl.arange(0, COUT)
    total = tl.zeros((BLOCK, COUT), tl.float32)
    for tap in tl.range(0, 9, num_stages=STAGES):
        at = corner + ((tap // 3) * WI + tap % 3) * CIN
        a = tl.load(x + at[:, None] + i[None, :], mask=inside[:, None], other=0.0)
        w = tl.load(weight + (tap * CIN + i[:, None]) * COUT + o[None, :])
        total = tl.dot(a, w, total)
    total += tl.load(bias + o)[None, :]
    if RELU:
        total = tl.maximum(total, 0.0)
    tl.store(y + p[:, None] * COUT + o[None, :], total.to(y.dtype.element_ty), inside[:, None])


@triton.jit
def _input_gradient(
    g, weight, x, dx, pixels,
    HI: tl.constexpr, WI: tl.constexpr, HO: tl.constexpr, WO: tl.constexpr,
    CIN: tl.constexpr, COUT: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """A block of input pixels, for stride 1; zero where the input was clipped at zero."""
    p = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = p < pixels
    image, rest = p // (HI * WI), p % (HI * WI)
    row, column = rest // WI, rest % WI
    i, o = tl.arange(0, CIN), tl.arange(0, COUT)
    total = tl.zeros((BLOCK, CIN), tl.float32)
    for tap in tl.range(0, 9, num_stages=STAGES):
        r, c = row - tap // 3, column - tap % 3
        there = inside & (r >= 0) & (r < HO) & (c >= 0) & (c < WO)
        at = ((image * HO + r) * WO + c) * COUT
        a = tl.load(g + at[:, None] + o[None, :], mask=there[:, None], other=0.0)
        w = tl.load(weight + (tap * COUT + o[:, None]) * CIN + i[None, :])
        total = tl.dot(a, w, total)
    here = p[:, None] * CIN + i[None, :]
    alive = tl.load(x + here, mask=inside[:, None], other=0.0) > 0
    tl.store(dx + here, tl.where(alive, total, 0.0).to(dx.dtype.element_ty), inside[:, None])


@triton.jit
def _weight_gradient(
    g, x, dw, db, pixels,
    HI: tl.constexpr, WI: tl.constexpr, HO: tl.constexpr, WO: tl.constexpr,
    STRIDE: tl.constexpr, CIN: tl.constexpr, COUT: tl.constexpr, SPAN: tl.constexpr,
    PROGRAMS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A share of the pixels and one row of taps: partial sums, added up later in a fixed order."""
    part, dy = tl.program_id(0), tl.program_id(1)
    j, o = tl.arange(0, SPAN), tl.arange(0, COUT)
    used = j < 3 * CIN
    total = tl.zeros((SPAN, COUT), tl.float32)
    bias = tl.zeros((COUT,), tl.float32)
    for start in range(part * BLOCK, pixels, PROGRAMS * BLOCK):
        p = start + tl.arange(0, BLOCK)
        inside = p < pixels
        image, rest = p // (HO * WO), p % (HO * WO)
        row, column = rest // WO, rest % WO
        at = ((image * HI + row * STRIDE + dy) * WI + column * STRIDE) * CIN
        gradient = tl.load(g + p[:, None] * COUT + o[None, :], mask=inside[:, None], other=0.0)
        there = inside[:, None] & used[None, :]
        source = tl.load(x + at[:, None] + j[None, :], mask=there, other=0.0)  # (BLOCK, SPAN)
        total = tl.dot(tl.trans(source), gradient, total)
        bias += tl.sum(gradient.to(tl.float32), axis=0)
    out = dw + ((part * 3 + dy) * 3 * CIN + j[:, None]) * COUT + o[None, :]
    tl.store(out, total, mask=used[:, None])
    if dy == 0:
        tl.store(db + part * COUT + o, bias)


@dataclass(frozen=True)
class Layer:
    """The shapes of one convolution."""

    height_in: int
    height_out: int
    stride: int
    channels_in: int  # padded to 16 in the first layer
    channels_out: int
    relu: bool

    @property
    def span(self) -> int:
        """Three pixels' input channels, up to a power of two."""
        return triton.next_power_of_2(3 * self.channels_in)


class FusedConvolutions:
    """A CNN's forward pass by these kernels: set as its ``forward``, nothing else changes."""

    def __init__(self, network: CNN) -> None:
        self.network = network
        convolutions = [m for m in network.layers if isinstance(m, torch.nn.Conv2d)]
        self.layers, side = [], network.input_shape[1]
        for number, convolution in enumerate(convolutions):
            stride = int(convolution.stride[0])
            after = (side - 3) // stride + 1
            channels = max(16, -(-convolution.in_channels // 16) * 16)
            relu = number < len(convolutions) - 1 or len(network.layers) == 2 * len(convolutions)
            self.layers.append(Layer(side, after, stride, channels, convolution.out_channels, relu))
            side = after
        self.parameters = [p for c in convolutions for p in (c.weight, c.bias)]

    @staticmethod
    def fits(network: torch.nn.Module) -> bool:
        """Whether the kernels are made for these shapes: one stride, then none; 16 to 64."""
        if not isinstance(network, CNN):
            return False
        convolutions = [m for m in network.layers if isinstance(m, torch.nn.Conv2d)]
        filters = convolutions[0].out_channels
        strides = [int(c.stride[0]) for c in convolutions]
        return filters in (16, 32, 64) and strides[1:] == [1] * (len(strides) - 1)

    def __call__(self, images: Tensor) -> Tensor:
        """(B, 9, H, W) in [0, 1] -> (B, features)."""
        if not torch.is_autocast_enabled(images.device.type):
            return CNN.forward(self.network, images)  # full precision: the library's kernels
        if self.network.centre:
            images = images - self.network.centre
        return _Convolutions.apply(self.layers, images, *self.parameters)


class _Convolutions(torch.autograd.Function):
    """All layers at once; activations are kept in autocast's precision, sums are float32."""

    @staticmethod
    def forward(ctx: Any, layers: list[Layer], images: Tensor, *parameters: Tensor) -> Tensor:
        dtype = torch.get_autocast_dtype(images.device.type)
        weights, biases = pack(layers, parameters[::2], dtype), parameters[1::2]
        x = channels_last(images, layers[0].channels_in, dtype)
        activations = [x]
        for layer, weight, bias in zip(layers, weights, biases, strict=True):
            x = convolve(layer, x, weight, bias)
            activations.append(x)
        ctx.layers, ctx.shape, ctx.dtype = layers, images.shape, images.dtype
        ctx.save_for_backward(*activations, *weights)
        return x.permute(0, 3, 1, 2).flatten(1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:  # type: ignore[override]
        layers: list[Layer] = ctx.layers
        count = len(layers)
        activations, weights = ctx.saved_tensors[: count + 1], ctx.saved_tensors[count + 1 :]
        last = layers[-1]
        g = gradient.unflatten(1, (last.channels_out, last.height_out, last.height_out))
        g = g.permute(0, 2, 3, 1).to(activations[0].dtype).contiguous()
        if last.relu:
            g = g * (activations[-1] > 0)
        sums = PartialSums(layers, g.device)
        # One transposition for all layers: (layer, tap, out, in) is what an output gives back.
        turned = [None, *torch.stack(weights[1:]).mT.contiguous().unbind()] if count > 1 else [None]
        for number in reversed(range(count)):
            layer, x = layers[number], activations[number]
            weight_gradient(layer, g, x, *sums.of(number))
            if number:
                g = input_gradient(layer, g, turned[number], x)  # type: ignore[arg-type]
        of_images = None
        if ctx.needs_input_grad[1]:  # a masker stands before the network: the library computes
            first = weights[0][:, : ctx.shape[1]].permute(2, 1, 0).unflatten(2, (3, 3))
            of_images = conv2d_input(ctx.shape, first, g.permute(0, 3, 1, 2), layers[0].stride)
            of_images = of_images.to(ctx.dtype)
        return None, of_images, *sums.gradients(ctx.shape[1])


class PartialSums:
    """Where the layers' weight gradients are summed up; all but the first layer's lie together."""

    def __init__(self, layers: list[Layer], device: torch.device) -> None:
        first, filters = layers[0], layers[0].channels_out

        def room(*shape: int) -> Tensor:
            return torch.empty(shape, dtype=torch.float32, device=device)

        self.first = room(PARTS, 9, first.channels_in, filters)
        self.rest = room(len(layers) - 1, PARTS, 9, filters, filters)
        self.biases = room(len(layers), PARTS, filters)

    def of(self, number: int) -> tuple[Tensor, Tensor]:
        """A layer's room for weights (PARTS, 9, in, out) and biases (PARTS, out)."""
        return self.rest[number - 1] if number else self.first, self.biases[number]

    def gradients(self, channels: int) -> list[Tensor]:
        """Gradients in the parameters' own layout, weights and biases in turn."""
        head = self.first.sum(0)[:, :channels].permute(2, 1, 0)
        rest = self.rest.sum(1).permute(0, 3, 2, 1).contiguous().unflatten(3, (3, 3))
        weights = [head.unflatten(2, (3, 3)).contiguous(), *rest.unbind()]
        biases = self.biases.sum(1).unbind()
        return [tensor for pair in zip(weights, biases, strict=True) for tensor in pair]


def channels_last(images: Tensor, padded: int, dtype: torch.dtype) -> Tensor:
    """(B, C, H, W) -> (B, H, W, padded)."""
    batch, channels, *sides = images.shape
    y = images.new_empty((batch, *sides, padded), dtype=dtype)
    plane, block = sides[0] * sides[1], 128
    _channels_last[(triton.cdiv(batch * plane, block),)](
        images.contiguous(), y, batch * plane, plane, channels, padded, block
    )
    return y


def pack(layers: list[Layer], weights: tuple[Tensor, ...], dtype: torch.dtype) -> list[Tensor]:
    """Weights as (tap, in, out) in low precision; all but the first layer's in one go."""
    first = layers[0]
    head = weights[0].new_zeros((9, first.channels_in, first.channels_out), dtype=dtype)
    head[:, : weights[0].shape[1]] = weights[0].permute(2, 3, 1, 0).flatten(0, 1)
    if len(weights) == 1:
        return [head]
    rest = torch.stack(weights[1:]).permute(0, 3, 4, 2, 1)  # (layer, 3, 3, in, out)
    return [head, *rest.to(dtype).flatten(1, 2).contiguous().unbind()]


def convolve(layer: Layer, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """One layer forward, (B, H, W, in) -> (B, H', W', out)."""
    batch, out = len(x), layer.height_out
    y = x.new_empty((batch, out, out, layer.channels_out))
    pixels, (block, warps, stages) = batch * out * out, FORWARD
    _forward[(triton.cdiv(pixels, block),)](
        x, weight, bias, y, pixels, layer.height_in, layer.height_in, out, out,
        layer.stride, layer.channels_in, layer.channels_out, layer.relu, block, stages,
        num_warps=warps,
    )  # fmt: skip
    return y


def input_gradient(layer: Layer, g: Tensor, turned: Tensor, x: Tensor) -> Tensor:
    """The gradient at a layer's input, through the ReLU that made the input."""
    dx = torch.empty_like(x)
    pixels, out = len(x) * layer.height_in**2, layer.height_out
    block, warps, stages = INPUT_GRADIENT
    _input_gradient[(triton.cdiv(pixels, block),)](
        g, turned, x, dx, pixels, layer.height_in, layer.height_in, out, out,
        layer.channels_in, layer.channels_out, block, stages, num_warps=warps,
    )  # fmt: skip
    return dx


def weight_gradient(layer: Layer, g: Tensor, x: Tensor, dw: Tensor, db: Tensor) -> None:
    """Fill in partial sums of the gradients of weight (PARTS, 9, in, out) and bias (PARTS, out)."""
    out, (block, warps) = layer.height_out, WEIGHT_GRADIENT
    _weight_gradient[(PARTS, 3)](
        g, x, dw, db, len(x) * out * out, layer.height_in, layer.height_in, out, out,
        layer.stride, layer.channels_in, layer.channels_out, layer.span, PARTS, block,
        num_warps=warps,
    )  # fmt: skip
