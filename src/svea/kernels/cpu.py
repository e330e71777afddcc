"""Convolutions for CPUs in C (cpu.c), compiled on the machine that runs them.

At the sizes one trains on a CPU, a library spends more time on changing layouts, and on filters
that fill a vector register exactly but are treated like any other, than on arithmetic. These
kernels know all sizes when they are compiled, which takes a second (six for the paper's network)
and is kept in a cache. docs/notes/speed.md has the timings.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.grad import conv2d_input

from svea.core import compiled
from svea.kernels import team
from svea.kernels.team import CHUNKS
from svea.networks.cnn import CNN

SOURCE = Path(__file__).with_name("cpu.c")
PARTS = (
    SOURCE,
    *map(SOURCE.with_name, ("winograd.c", "team.c", "views.c", "steps.c", "crops.c")),
)
OPTIMISE = compiled.OPTIMISE
BuildError = compiled.BuildError


@functools.cache
def library(layers: str = "") -> ctypes.CDLL:
    """The kernels for a network's layers, compiled unless an earlier run did it."""
    options = (*defined(layers), *OPTIMISE)
    return compiled.load_c(PARTS, options, "random_convolution")


def defined(layers: str) -> tuple[str, ...]:
    """The definitions that make the source one for these layers."""
    backwards = "LAYER" + " LAYER".join(reversed(layers.split("LAYER")[1:])) if layers else ""
    return (f"-DLAYERS={layers}", f"-DREVERSED={backwards}")


def call(function: Callable[..., Any], batch: int, *arguments: Any) -> None:
    """Call a kernel of any library; the helpers are those of one of them (`team.call`)."""
    team.call(library(), function, batch, *arguments)


# Views --------------------------------------------------------------------------------------------


def suits_random_convolution(x: Tensor) -> bool:
    """Whether `random_convolution` can take these pictures."""
    rows, columns = x.shape[2:]
    return x.dtype == torch.float32 and 4 <= rows <= 256 and 16 <= columns <= 256


def random_convolution(x: Tensor, weight: Tensor) -> Tensor:
    """(B, 3k, H, W) and a filter for each sample (B, 3, 3, 3, 3) -> sigmoid of the convolution."""
    batch, channels, rows, columns = x.shape
    y = x.__dict__.pop("room", None)  # next to the view that it is made of
    x = x.contiguous()
    y = torch.empty_like(x) if y is None else y
    sizes = (batch, channels // 3, rows, columns)
    call(library().random_convolution, batch, x, weight.contiguous(), y, *sizes)
    return y


def window_pixels(x: Tensor, corner: Tensor, height: int, width: int, pad: int) -> Tensor:
    """One window per sample (`augment.crops.windows`) of bytes (B, C, H, W), as numbers in [0, 1].

    The same bits as moving bytes and then dividing them by 255, in one pass instead of five. It
    leaves room behind it for a strong view, so that both can enter a network without a copy.
    """
    batch, channels, rows, columns = x.shape
    y, room = torch.empty(2, batch, channels, height, width)
    y.room = room  # type: ignore[attr-defined]
    sizes = (batch, channels, rows, columns, height, width, pad)
    call(library().window_pixels, batch, x.contiguous(), corner.contiguous(), y, *sizes)
    return y


# A network's layers -------------------------------------------------------------------------------

TILED_FROM = 12  # pixels wide; in smaller pictures Winograd's additions cost what it saves
# Winograd's F(2x2, 3x3): what G makes of a filter's rows and columns, as one matrix (16, 9).
G = torch.tensor([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])
FILTER_TO_TILE = torch.kron(G, G)


@dataclass(frozen=True)
class Layer:
    """One convolution: sizes before and after it, and whether a ReLU follows."""

    side: int
    channels: int
    stride: int
    filters: int
    relu: bool
    tiled: bool  # by Winograd's method (winograd.c)

    @property
    def after(self) -> int:
        """Height and width of its output."""
        return (self.side - 3) // self.stride + 1

    def tiles(self, taps: Tensor) -> Tensor:
        """Weights (3, 3, from, to) as 16 numbers for each tile."""
        return (FILTER_TO_TILE @ taps.flatten(0, 1).flatten(1)).view(16, *taps.shape[2:])


class Convolutions:
    """A CNN's forward pass by these kernels: set as its ``forward``, nothing else changes."""

    def __init__(self, network: CNN) -> None:
        self.network = network
        convolutions = [m for m in network.layers if isinstance(m, nn.Conv2d)]
        self.layers: list[Layer] = []
        side = network.input_shape[1]
        for number, one in enumerate(convolutions):
            relu = number < len(convolutions) - 1 or network.drqv2
            stride, channels, filters = int(one.stride[0]), one.in_channels, one.out_channels
            tiled = number > 0 and stride == 1 and side >= TILED_FROM
            layer = Layer(side, channels, stride, filters, relu, tiled)
            self.layers.append(layer)
            side = layer.after
        self.parameters = [p for one in convolutions for p in (one.weight, one.bias)]
        self.source = " ".join(
            f"LAYER({number}, {each.side}, {each.channels}, {each.stride}, {each.filters}, "
            f"{int(each.relu)}, {int(each.tiled)})"
            for number, each in enumerate(self.layers)
        )
        library(self.source)  # compile now, not in the first update

    @staticmethod
    def fits(network: nn.Module) -> bool:
        """Whether the kernels can compute it, and gain: measured for 16 and for 32 filters."""
        return (
            isinstance(network, CNN)
            and network.maps[0] in (16, 32)
            and network.input_shape[0] <= 16
        )

    def __call__(self, images: Tensor) -> Tensor:
        """(B, 9, H, W) in [0, 1] -> (B, features)."""
        fit = images.dtype == torch.float32 and images.shape[1:] == self.network.input_shape
        if not fit:  # the kernels are made for no others
            return CNN.forward(self.network, images)
        if self.network.centre:
            images = images - self.network.centre
        keep = torch.is_grad_enabled()
        return _Convolutions.apply(self, keep, images.contiguous(), *self.parameters)


class _Convolutions(torch.autograd.Function):
    """All layers at once, pictures as (batch, height, width, channels) after the first."""

    @staticmethod
    def forward(
        ctx: Any, kernels: Convolutions, keep: bool, images: Tensor, *parameters: Tensor
    ) -> Tensor:
        weights, biases = parameters[::2], parameters[1::2]
        given = [
            # (3, 3, in, out) for tiles, else (out, 3, 3, in)
            layer.tiles(weight.permute(2, 3, 1, 0)) if layer.tiled else channels_last(weight)
            for layer, weight in zip(kernels.layers, weights, strict=True)
        ]
        batch, last = len(images), kernels.layers[-1]
        inside = [
            images.new_empty(batch, layer.after, layer.after, layer.filters)
            for layer in (kernels.layers[:-1] if keep else ())
        ]
        features = images.new_empty(batch, last.filters * last.after**2)
        forward = library(kernels.source).forward
        call(forward, batch, [images, *inside], features, given, biases, batch, int(keep))
        if keep:
            ctx.kernels = kernels
            ctx.save_for_backward(*weights, images, *inside, *([features] if last.relu else []))
        return features

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:  # type: ignore[override]
        kernels: Convolutions = ctx.kernels
        count, last, first = len(kernels.layers), kernels.layers[-1], kernels.layers[0]
        weights, activations = ctx.saved_tensors[:count], ctx.saved_tensors[count : 2 * count]
        if last.relu:
            gradient = gradient * (ctx.saved_tensors[-1] > 0)
        g, batch = gradient.contiguous(), len(gradient)
        given = [
            # (3, 3, out, in) for tiles, which are convolved with the turned filters
            layer.tiles(weight.flip(2, 3).permute(2, 3, 0, 1)) if layer.tiled
            else channels_last(weight)
            for layer, weight in zip(kernels.layers, weights, strict=True)
        ]  # fmt: skip
        # At the first layer's output, where a masker stands before the network.
        at_first = None
        if ctx.needs_input_grad[2]:
            at_first = g.new_empty(batch, first.after, first.after, first.filters)
        parts = torch.zeros(CHUNKS, sum(weight.numel() + len(weight) for weight in weights))
        kernel = library(kernels.source)
        call(kernel.backward, batch, activations, g, given, parts, at_first, batch)
        gradients = summed(kernel, parts, weights)
        if at_first is None:
            return None, None, None, *gradients
        planes = (batch, first.filters, first.after, first.after)
        slope = at_first.permute(0, 3, 1, 2) if count > 1 else g.view(planes)
        shape = activations[0].shape
        return None, None, conv2d_input(shape, weights[0], slope, first.stride), *gradients


def channels_last(weight: Tensor) -> Tensor:
    """Weights as (out, 3, 3, in): a copy only if they do not lie so."""
    return weight.permute(0, 2, 3, 1).contiguous()


def summed(kernel: ctypes.CDLL, parts: Tensor, weights: Sequence[Tensor]) -> list[Tensor]:
    """The gradients of weights and biases in turn, in their own layout, from CHUNKS parts."""
    dw = [torch.empty_like(channels_last(weight)) for weight in weights]
    dbias = [parts.new_empty(len(weight)) for weight in weights]
    call(kernel.sum_gradients, 1, parts, dw, dbias)
    return [
        each
        for weight, bias in zip(dw, dbias, strict=True)
        for each in (weight.permute(0, 3, 1, 2), bias)
    ]
