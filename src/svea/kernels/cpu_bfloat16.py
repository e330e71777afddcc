"""A CNN's layers on a CPU in bfloat16, with sums in float32 (cpu_bfloat16.c).

Processors with AVX512_BF16 (AMD from Zen 4 on, Intel's Cooper Lake and Sapphire Rapids) multiply
pairs of bfloat16 at twice the rate of float32, and everything between layers takes half the bytes.
Weights, their gradients and the optimiser stay in float32.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.grad import conv2d_input

from svea.kernels.cpu import CHUNKS, BuildError, Convolutions, call, library, summed
from svea.networks.cnn import CNN

NEAR = 0.03
"""Of a norm, between kernels and plain PyTorch that rounds where they do; 0.001 is usual."""


class Kernels(Protocol):
    """What takes the place of a network's forward pass."""

    parameters: list[Any]

    def __call__(self, x: Tensor, /) -> Tensor:
        """By kernels."""

    def plain(self, x: Tensor, /) -> Tensor:
        """In plain PyTorch, rounded in the same places."""


def has_instruction() -> bool:
    """Whether this processor multiplies pairs of bfloat16; else kernels make them of float32."""
    return bool(library().multiplies_pairs())


def check(fast: Kernels, x: Tensor) -> None:
    """Raise an error unless outputs and gradients are those of plain PyTorch."""
    trained = [parameter for parameter in fast.parameters if parameter.requires_grad]
    with torch.enable_grad():
        with torch.autocast("cpu", torch.bfloat16):
            outputs = [fast(x)]
        with torch.autocast("cpu", enabled=False):
            outputs += [fast.plain(x)]
    slope = torch.randn(outputs[0].shape, generator=torch.Generator().manual_seed(1))
    found, wanted = (
        [output, *(torch.autograd.grad(output, trained, slope) if trained else ())]
        for output in outputs
    )
    for mine, right in zip(found, wanted, strict=True):
        away, size = (float(each.detach().norm()) for each in (mine - right, right))
        if not away <= NEAR * size + 1e-3:  # NaN fails
            raise BuildError(f"on trial they were {away:.2g} away from numbers of norm {size:.2g}")


def low(numbers: Tensor) -> Tensor:
    """Numbers rounded to bfloat16, and in backward passes their slopes."""
    return numbers.bfloat16().float()


class PairedConvolutions(Convolutions):
    """A CNN's forward pass in bfloat16 where autocast asks for it, else the library's."""

    precision = torch.bfloat16

    def __init__(self, network: CNN) -> None:
        super().__init__(network)
        few = torch.rand(3, *network.input_shape, generator=torch.Generator().manual_seed(0))
        check(self, few)

    def plain(self, images: Tensor) -> Tensor:
        """The same in plain PyTorch."""
        x = images - self.network.centre
        for layer in self.network.layers:
            if isinstance(layer, nn.Conv2d):
                x = F.conv2d(low(x), low(layer.weight), layer.bias, layer.stride)
            else:
                x = layer(x)
        return x.flatten(1)

    def __call__(self, images: Tensor) -> Tensor:
        """(B, 9, H, W) in [0, 1] -> (B, features) in float32."""
        fit = images.dtype in (torch.float32, torch.bfloat16)
        asked = torch.is_autocast_enabled("cpu")
        if not (fit and asked and images.shape[1:] == self.network.input_shape):
            return CNN.forward(self.network, images.to(next(self.network.parameters()).dtype))
        if self.network.centre:
            images = images - self.network.centre
        keep = torch.is_grad_enabled()
        return _Paired.apply(self, keep, images.bfloat16().contiguous(), *self.parameters)


class _Paired(torch.autograd.Function):
    """All layers at once, pictures as (batch, height, width, channels) after the first."""

    @staticmethod
    def forward(
        ctx: Any, kernels: PairedConvolutions, keep: bool, images: Tensor, *parameters: Tensor
    ) -> Tensor:
        weights = [weight.permute(0, 2, 3, 1).contiguous() for weight in parameters[::2]]
        batch, last = len(images), kernels.layers[-1]
        count = batch if keep else CHUNKS
        inside = [
            images.new_empty(count, layer.after, layer.after, layer.filters)
            for layer in kernels.layers[:-1]
        ]
        features = torch.empty(batch, last.filters * last.after**2)
        forward = library(kernels.source, torch.bfloat16).forward_pairs
        given = (images, [images, *inside], features, weights, parameters[1::2])
        call(forward, batch, *given, batch, int(keep))
        if keep:
            ctx.kernels = kernels
            ctx.save_for_backward(*weights, images, *inside, *([features] if last.relu else []))
        return features

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:  # type: ignore[override]
        kernels: PairedConvolutions = ctx.kernels
        count, last, first = len(kernels.layers), kernels.layers[-1], kernels.layers[0]
        weights, activations = ctx.saved_tensors[:count], ctx.saved_tensors[count : 2 * count]
        if last.relu:
            gradient = gradient * (ctx.saved_tensors[-1] > 0)
        g, batch = gradient.float().contiguous(), len(gradient)
        at_first, edge = None, 2 // first.stride
        if ctx.needs_input_grad[2]:  # where a masker stands before the network
            wide = first.after + 2 * edge
            at_first = activations[0].new_empty(batch, wide, wide, first.filters)
        numbers = sum(weight.numel() + len(weight) for weight in weights)
        parts = torch.zeros(CHUNKS, numbers)
        kernel = library(kernels.source, torch.bfloat16)
        call(kernel.backward_pairs, batch, activations, g, weights, parts, at_first, batch)
        gradients = summed(kernel, parts, [weight.permute(0, 3, 1, 2) for weight in weights])
        if at_first is None:
            return None, None, None, *gradients
        slope = at_first[:, edge:-edge, edge:-edge].permute(0, 3, 1, 2).float()
        shape, taps = activations[0].shape, weights[0].permute(0, 3, 1, 2)
        return None, None, conv2d_input(shape, taps, slope, first.stride), *gradients
