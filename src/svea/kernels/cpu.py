"""Kernels in C for updates on a CPU (cpu.c and its parts), compiled on the machine that runs them.

At the sizes one trains on a CPU, a library spends more time on changing layouts, and on filters
that fill a vector register exactly but are treated like any other, than on arithmetic. These
kernels know all sizes when they are compiled, which takes a second (six for the paper's network)
and is kept in a cache. docs/lab-book.md has the timings.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.grad import conv2d_input

from svea import views
from svea.agents.agent import Agent
from svea.augment import Augmentation, conv, crop, shift
from svea.augment.images import Crops, ImageBank
from svea.core import compiled
from svea.core.machine import usable_cores
from svea.kernels.steps import followers, gradients_of, has_right_tensors
from svea.networks.encoders import CNN
from svea.speed.accelerate import further_trunks

if TYPE_CHECKING:
    from svea.agents.agent import Losses

SOURCE = Path(__file__).with_name("cpu.c")
PARTS = (
    SOURCE,
    *map(SOURCE.with_name, ("winograd.c", "team.c", "views.c", "steps.c", "crops.c")),
)
OPTIMISE = compiled.OPTIMISE
BuildError = compiled.BuildError
CHUNKS = 16  # parts of a batch that threads take one by one; as in the source
MOST_ARGUMENTS = 20  # of a kernel; as in the source
KINDS = (torch.float32, torch.uint8, torch.int32, torch.int64)  # of tensors
WORTH_SHARING = 32  # pictures; with fewer, waking another thread takes longer than the work
AS_A_PICTURE = 1024  # numbers whose optimiser step takes as long as a picture in other kernels


@functools.cache
def library(layers: str = "") -> ctypes.CDLL:
    """The kernels for a network's layers, compiled unless an earlier run did it."""
    options = (*defined(layers), *OPTIMISE)
    return compiled.load_c(PARTS, options, "random_convolution")


def defined(layers: str) -> tuple[str, ...]:
    """The definitions that make the source one for these layers."""
    backwards = "LAYER" + " LAYER".join(reversed(layers.split("LAYER")[1:])) if layers else ""
    return (f"-DLAYERS={layers}", f"-DREVERSED={backwards}")


class Work(ctypes.Structure):
    """A kernel and its arguments, as the source has it."""

    _fields_ = (("function", ctypes.c_void_p), ("arguments", ctypes.c_long * MOST_ARGUMENTS))


def threads() -> int:
    """How many threads share a kernel's work: every core, or as many as OMP_NUM_THREADS says.

    A core that an environment keeps busy for a while takes fewer parts of the work; nothing waits
    for it. That is not so for torch's own threads, which all wait for the slowest (`leave_a_core`),
    so that they are used only if there are several of them anyway.
    """
    return torch.get_num_threads() if "OMP_NUM_THREADS" in os.environ else usable_cores()


@functools.cache
def torch_threads() -> Any:
    """The function that lets torch's own threads work, or none where they are of another kind."""
    found = next((Path(torch.__file__).parent / "lib").glob("libgomp*"), None)
    return ctypes.CDLL(str(found)).GOMP_parallel if found else None


def call(function: Any, batch: int, *arguments: Any) -> None:
    """Call a kernel, with the help of other threads where the batch is worth it.

    Torch's threads are the helpers if it has several: they spin for a while after each of its own
    operations, and a second set would have to share their cores.
    """
    kernels, following, kept = library(), ctypes.c_long(0), []
    work = Work(ctypes.cast(function, ctypes.c_void_p))
    for number, argument in enumerate(arguments):
        if isinstance(argument, (list, tuple)):
            kept.append((ctypes.c_long * len(argument))(*map(_as_number, argument)))
            work.arguments[number] = ctypes.addressof(kept[-1])
        else:
            work.arguments[number] = _as_number(argument)
    work.arguments[len(arguments)] = ctypes.addressof(following)
    count = min(threads(), CHUNKS) if batch >= WORTH_SHARING else 1
    of_torch = min(torch.get_num_threads(), count)  # another number would end and start threads
    if of_torch > 1 and torch_threads():
        kernels.share_with_torch(ctypes.byref(work), ctypes.c_long(of_torch), torch_threads())
    else:
        kernels.share_with_helpers(ctypes.byref(work), ctypes.c_long(count))


def _as_number(argument: Tensor | int | None) -> int:
    """An argument of a kernel: where a contiguous tensor or none begins, or a whole number."""
    if argument is None:
        return 0
    if isinstance(argument, int):
        return argument
    if not argument.is_contiguous() or argument.dtype not in KINDS:
        raise TypeError("a kernel in C was given a tensor that is not plain")
    return argument.data_ptr()


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
    """One window per sample (`augment.usual.windows`) of bytes (B, C, H, W), as numbers in [0, 1].

    The same bits as moving bytes and then dividing them by 255, in one pass instead of five. It
    leaves room behind it for a strong view, so that both can enter a network without a copy.
    """
    batch, channels, rows, columns = x.shape
    y, room = torch.empty(2, batch, channels, height, width)
    y.room = room  # type: ignore[attr-defined]
    sizes = (batch, channels, rows, columns, height, width, pad)
    call(library().window_pixels, batch, x.contiguous(), corner.contiguous(), y, *sizes)
    return y


def resized_crops(pictures: Tensor, crops: Crops, height: int, width: int) -> Tensor:
    """Crops of uint8 (N, 3, side, side) -> float32 (count, 3, height, width) in [0, 1].

    It agrees with `images.resize_each` to one level of 255.
    """
    count, side = len(crops.chosen), pictures.shape[-1]
    y = torch.empty(count, 3, height, width)
    *places, mirrored = (each.contiguous() for each in crops)
    given = (pictures, *places, mirrored.view(torch.uint8), y, count, side, height, width)
    call(library().resize_crops, count, *given)
    return y


def conv_in_c(x: Tensor, *, weight: Tensor) -> Tensor:
    """`conv`."""
    if suits_random_convolution(x):
        return random_convolution(x, weight)
    return conv.function(x, weight=weight)


def shift_in_c(x: Tensor, *, corner: Tensor, pad: int) -> Tensor:
    """`shift`, which makes pixels of bytes."""
    if x.dtype != torch.uint8:
        return shift.function(x, corner=corner, pad=pad)
    return window_pixels(x, corner, x.shape[2], x.shape[3], pad)


def crop_in_c(x: Tensor, *, corner: Tensor, size: int) -> Tensor:
    """`crop`, which makes pixels of bytes."""
    if x.dtype != torch.uint8:
        return crop.function(x, corner=corner, size=size)
    return window_pixels(x, corner, size, size, 0)


AUGMENTATIONS: dict[str, Callable[..., Tensor]] = {
    "conv": conv_in_c,
    "shift": shift_in_c,
    "crop": crop_in_c,
}


def fast_augmentation(augment: Augmentation) -> Augmentation:
    """The augmentation by kernels, where there are some; its draws stay the same."""
    fast = replace(augment, function=AUGMENTATIONS.get(augment.name, augment.function))
    if isinstance(images := fast.parameters.get("images"), ImageBank):
        return fast.bind(images=replace(images, resize=resized_crops))
    return fast


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


def compute(networks: Iterable[nn.Module]) -> None:
    """Let kernels compute networks, where they fit: most of an update on a CPU."""
    for network in networks:
        for part in (network, *further_trunks(network)):
            if Convolutions.fits(part):
                part.forward = Convolutions(part)  # type: ignore[arg-type, assignment]


# Optimisers ---------------------------------------------------------------------------------------


class StepsInC:
    """An agent's `step` and `update_target`, for weights that lie together in float32."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.slow, self.fast, rates = zip(*followers(agent), strict=True)
        self.rates, self.sizes = torch.tensor(rates), [each.numel() for each in self.slow]

    def step(self, name: str, loss: Tensor, *others: str) -> Losses:
        """What `Agent.step` does: norm, judgement, step."""
        if others:  # they are judged together
            return Agent.step(self.agent, name, loss, *others)
        optimiser = self.agent.optimisers[name]
        group = optimiser.param_groups[0]
        parameters = group["params"]
        gradients = gradients_of(loss, optimiser)  # kept until the kernels are done
        states = [optimiser.state[parameter] for parameter in parameters]
        moment, square, steps = (
            places([state[key] for state in states]) for key in ("exp_avg", "exp_avg_sq", "step")
        )
        sizes = [p.numel() for p in parameters]
        count, everything = len(sizes), sum(sizes)
        of_gradients, kernels = places(gradients), library()
        norm = torch.empty(())
        numbers = torch.tensor([group["lr"], *group["betas"], group["eps"]], dtype=torch.float64)
        call(kernels.judge, 1, of_gradients, steps, sizes, count, norm)
        given = (places(parameters), of_gradients, moment, square, steps, sizes, count, everything)
        call(kernels.adam, everything // AS_A_PICTURE, *given, numbers.data_ptr(), norm)
        return {f"{name}_loss": loss.detach(), f"{name}_gradient": norm}

    @torch.no_grad()
    def update_target(self) -> None:
        """What `Agent.update_target` does."""
        sizes, everything = self.sizes, sum(self.sizes)
        given = (places(self.slow), places(self.fast), sizes, len(sizes), everything, self.rates)
        call(library().follow, everything // AS_A_PICTURE, *given)


def places(tensors: Sequence[Tensor]) -> list[int]:
    """Where tensors lie that are in one piece, in torch's own order or channels last."""
    return [tensor.data_ptr() for tensor in tensors]


def accelerate(agent: Agent) -> None:
    """Put the kernels on an agent's views, networks, optimisers and targets."""
    agent.view_maker.pixels, agent.view_maker.join = remaining_pixels, join_views
    compute(agent.networks.values())
    if has_right_tensors(agent):
        steps = StepsInC(agent)
        agent.step, agent.update_target = steps.step, steps.update_target  # type: ignore[method-assign]
