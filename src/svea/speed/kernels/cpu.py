"""Convolutions for CPUs in C (cpu.c), compiled on the machine that runs them.

At the sizes one trains on a CPU, a library spends more time on changing layouts, and on filters
that fill a vector register exactly but are treated like any other, than on arithmetic. These
kernels know all sizes when they are compiled, which takes about a second and is kept in a cache.
docs/notes/speed.md has the timings.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.grad import conv2d_input

from svea.errors import StorageError, UserError
from svea.networks.cnn import CNN
from svea.speed.kernels import cache

SOURCE = Path(__file__).with_name("cpu.c")
CHUNKS = 16  # parts in which a gradient is summed over the batch; as in the source
OPTIMISE = ("-O3", "-fno-math-errno", "-fno-trapping-math")


class BuildError(UserError):
    """The kernels cannot be compiled or loaded here; the message says what is in the way."""


@functools.cache
def library(layers: str = "") -> ctypes.CDLL:
    """The kernels for a network's layers, compiled unless an earlier run did it."""
    if sys.platform != "linux":
        raise BuildError("they are made for Linux")
    try:
        file = library_path(layers)
        if not cache.is_whole(file):
            build(layers, file)
        return ctypes.CDLL(str(file))
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace")[:500]
        raise BuildError(f"{error.cmd[0]} says: {said}") from error
    except (OSError, RuntimeError, StorageError) as error:  # RuntimeError: there is no home folder
        raise BuildError(f"{error}; XDG_CACHE_HOME says where compiled kernels are kept") from error


def library_path(layers: str) -> Path:
    """Where a library lies. Its name says what it was made from and for which processor.

    Home folders may be shared by unlike machines. The compiler is not part of it: a run that
    resumes where the compiler is gone, or is another one, keeps its bits.
    """
    made_from = (SOURCE.read_text(), layers, *OPTIMISE, native(), threads().name, processor())
    return cache.path_for(made_from, "so")


def build(layers: str, file: Path) -> None:
    """Compile the source."""
    compiler = shutil.which(os.environ.get("CC") or "gcc") or shutil.which("cc")
    if compiler is None:
        raise BuildError("a C compiler (gcc) is not installed")
    with tempfile.TemporaryDirectory() as folder:
        made, linked = f"{folder}/kernels.o", f"{folder}/kernels.so"
        options = [*OPTIMISE, native(), f"-DLAYERS={layers}", "-fopenmp", "-fPIC"]
        for command in (
            [compiler, *options, "-c", str(SOURCE), "-o", made],
            [compiler, "-shared", made, str(threads()), "-o", linked],
        ):
            subprocess.run(command, check=True, capture_output=True)
        content = Path(linked).read_bytes()
    cache.write(file, content)


def native() -> str:
    """The compiler's option for this machine's own instructions."""
    return "-march=native" if platform.machine() == "x86_64" else "-mcpu=native"


def threads() -> Path:
    """The library of torch's own threads: a second set of them would fight over the same cores."""
    found = next((Path(torch.__file__).parent / "lib").glob("libgomp*"), None)
    if found is None:
        raise BuildError("torch comes without its OpenMP library (libgomp)")
    return found


def processor() -> str:
    """What tells processors with other instructions apart."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    named = ("model name", "flags", "Features", "CPU part")
    return "\n".join(sorted({line for line in lines if line.startswith(named)}))


def call(function: Callable[..., Any], *arguments: Tensor | int) -> None:
    """Call a kernel with contiguous float32 tensors and whole numbers."""
    given: list[Any] = []
    for argument in arguments:
        if isinstance(argument, Tensor):
            if not argument.is_contiguous() or argument.dtype != torch.float32:
                raise TypeError("a kernel in C was given a tensor that is not plain float32")
            given.append(ctypes.c_void_p(argument.data_ptr()))
        else:
            given.append(ctypes.c_long(argument))
    function(*given)


# The random convolution ---------------------------------------------------------------------------


def suits_random_convolution(x: Tensor) -> bool:
    """Whether `random_convolution` can take these pictures."""
    rows, columns = x.shape[2:]
    return x.dtype == torch.float32 and 4 <= rows <= 256 and 16 <= columns <= 256


def random_convolution(x: Tensor, weight: Tensor) -> Tensor:
    """(B, 3k, H, W) and a filter for each sample (B, 3, 3, 3, 3) -> sigmoid of the convolution."""
    batch, channels, rows, columns = x.shape
    x = x.contiguous()
    y = torch.empty_like(x)
    sizes = (batch, channels // 3, rows, columns)
    call(library().random_convolution, x, weight.contiguous(), y, *sizes)
    return y.sigmoid_()


# A network's layers -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layer:
    """One convolution: sizes before and after it, and whether a ReLU follows."""

    side: int
    channels: int
    stride: int
    filters: int
    relu: bool

    @property
    def after(self) -> int:
        """Height and width of its output."""
        return (self.side - 3) // self.stride + 1


class Convolutions:
    """A CNN's forward pass by these kernels: set as its ``forward``, nothing else changes."""

    def __init__(self, network: CNN) -> None:
        self.network = network
        convolutions = [m for m in network.layers if isinstance(m, nn.Conv2d)]
        self.layers: list[Layer] = []
        side = network.input_shape[1]
        for number, one in enumerate(convolutions):
            relu = number < len(convolutions) - 1 or network.drqv2
            layer = Layer(side, one.in_channels, int(one.stride[0]), one.out_channels, relu)
            self.layers.append(layer)
            side = layer.after
        self.parameters = [p for one in convolutions for p in (one.weight, one.bias)]
        self.source = " ".join(
            f"LAYER({number}, {each.side}, {each.channels}, {each.stride}, {each.filters}, "
            f"{int(number == 0)})"
            for number, each in enumerate(self.layers)
        )
        library(self.source)  # compile now, not in the first update

    @staticmethod
    def fits(network: nn.Module) -> bool:
        """Whether the kernels gain anything: with more filters the library is as fast."""
        return isinstance(network, CNN) and network.maps[0] == 16 >= network.input_shape[0]

    def __call__(self, images: Tensor) -> Tensor:
        """(B, 9, H, W) in [0, 1] -> (B, features)."""
        fit = images.dtype == torch.float32 and images.shape[1:] == self.network.input_shape
        if not fit:  # the kernels are made for no others
            return CNN.forward(self.network, images)
        if self.network.centre:
            images = images - self.network.centre
        return _Convolutions.apply(self, images.contiguous(), *self.parameters)

    def kernel(self, name: str, layer: int) -> Callable[..., Any]:
        """A layer's kernel."""
        return getattr(library(self.source), f"{name}_{layer}")


class _Convolutions(torch.autograd.Function):
    """All layers at once, pictures as (batch, height, width, channels) after the first."""

    @staticmethod
    def forward(ctx: Any, kernels: Convolutions, images: Tensor, *parameters: Tensor) -> Tensor:
        activations = [images]
        for number, layer in enumerate(kernels.layers):
            weight, bias = parameters[2 * number : 2 * number + 2]
            y = images.new_empty(len(images), layer.after, layer.after, layer.filters)
            taps = weight.permute(2, 3, 1, 0).contiguous()  # (3, 3, in, out)
            forward = kernels.kernel("forward", number)
            call(forward, activations[-1], taps, bias, y, len(images), layer.relu)
            activations.append(y)
        ctx.kernels = kernels
        ctx.save_for_backward(*activations, *parameters[::2])
        return activations[-1].permute(0, 3, 1, 2).flatten(1)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:  # type: ignore[override]
        kernels: Convolutions = ctx.kernels
        count, last = len(kernels.layers), kernels.layers[-1]
        activations, weights = ctx.saved_tensors[: count + 1], ctx.saved_tensors[count + 1 :]
        g = gradient.unflatten(1, (last.filters, last.after, last.after)).permute(0, 2, 3, 1)
        g = g.contiguous()
        if last.relu:
            g = g * (activations[-1] > 0)
        gradients: list[Tensor] = []
        for number in reversed(range(count)):
            layer, x, weight = kernels.layers[number], activations[number], weights[number]
            taps = weight.permute(2, 3, 0, 1).contiguous()  # (3, 3, out, in)
            dw = g.new_zeros(CHUNKS, 3, 3, layer.channels, layer.filters)
            dbias = g.new_zeros(CHUNKS, layer.filters)
            dx = torch.empty_like(x) if number else g  # of the images: below, if at all
            call(kernels.kernel("backward", number), x, g, taps, dx, dw, dbias, len(x))
            # In the weight's own layout, which the fused optimiser insists on.
            in_layout = torch.empty_like(weight).copy_(dw.sum(0).permute(3, 2, 0, 1))
            gradients = [in_layout, dbias.sum(0), *gradients]
            g = dx
        images, first, at_first = activations[0], weights[0], g.permute(0, 3, 1, 2)
        of_images = (
            conv2d_input(images.shape, first, at_first, kernels.layers[0].stride)
            if ctx.needs_input_grad[1]  # a masker stands before the network: the library computes
            else None
        )
        return None, of_images, *gradients
