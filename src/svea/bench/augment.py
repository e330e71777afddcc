"""How long augmentations take, next to a naive loop over the samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from svea.augment import AUGMENTATIONS, Augment, find
from svea.augment.images import ImageBank
from svea.bench.timing import fastest_ms
from svea.config.names import WITH_PICTURES
from svea.core.errors import UserError
from svea.speed import choose_speed, synchronise
from svea.speed.accelerate import with_kernels

REFERENCE = "grouped convolution"
"""What all are compared with: padding, one grouped convolution and a sigmoid."""


@dataclass(frozen=True)
class AugmentRow:
    """One measurement: the fastest of the repeats, which other work on the machine disturbs least.

    Attributes:
        name: What was measured.
        device: `cpu` or `cuda`.
        batch: The shape of the batch.
        ms: Milliseconds for the batch.
        loop_ms: Milliseconds for a Python loop over the samples; None where there is none.
    """

    name: str
    device: str
    batch: tuple[int, ...]
    ms: float
    loop_ms: float | None = None


def time_augmentations(
    names: Iterable[str] = (),
    device: str = "cpu",
    batch: int | None = None,
    size: int = 84,
    repeats: int = 50,
    bfloat16: bool = False,
    on_name: Callable[[str], None] = lambda name: None,
) -> list[AugmentRow]:
    """Time every augmentation, and a naive loop over the samples.

    Args:
        names: Which augmentations; all when empty.
        device: `cpu` (in C where there is a kernel) or `cuda` (compiled, then captured in a CUDA
            graph): how an update runs them.
        batch: Samples in a batch; 64 on a CPU and 256 on a GPU when None.
        size: Height and width of the result in pixels; crop is given 16 more.
        repeats: Measurements, of which the fastest is reported.
        bfloat16: Give the observations as bfloat16, not float32.
        on_name: Called with each augmentation before it is timed.
    """
    if device == "cuda" and not torch.cuda.is_available():
        raise UserError("bench augment: no CUDA device here; use --device cpu")
    batch = (256 if device == "cuda" else 64) if batch is None else batch
    dtype = torch.bfloat16 if bfloat16 else torch.float32
    bank = ImageBank.procedural(device=device)
    special: dict[str, dict[str, Any]] = {name: {"images": bank} for name in WITH_PICTURES}
    special["crop"] = {"size": size}
    for what, given in (("repeats", repeats), ("batch", batch), ("size", size)):
        if given < 1:
            raise UserError(f"{what} is {given}; allowed: 1 or more")
    names = [name.replace("-", "_") for name in names]
    for name in names:
        find(name)  # an unknown one is named before anything is timed
    rows = [_reference(torch.rand(batch, 9, size, size, device=device, dtype=dtype), repeats)]
    for name in names or AUGMENTATIONS:
        on_name(name)
        side = size + 16 if name == "crop" else size
        x = torch.rand(batch, 9, side, side, device=device, dtype=dtype)
        parameters = special.get(name.partition(":")[0], {})
        rows.append(_augmentation_row(name, x, parameters, repeats))
        if name == "shift":  # the replay holds bytes: shifting those moves less memory
            rows.append(_augmentation_row(name, (x * 255).byte(), parameters, repeats))
    return rows


def _augmentation_row(name: str, x: Tensor, parameters: dict[str, Any], repeats: int) -> AugmentRow:
    """Time one augmentation and its loop over single samples."""
    plain = find(name).bind(**parameters)
    eager = choose_speed("auto", x.device) == "eager"
    fast = plain if eager else with_kernels(plain, x.device)

    def loop(x: Tensor) -> Tensor:
        return torch.cat([plain(sample[None]) for sample in x])

    label = name if x.is_floating_point() else f"{name} (uint8)"
    ms = time_augmentation(fast, x, repeats)
    loop_ms = time_augmentation(loop, x, max(3, repeats // 10), fast=False)
    return AugmentRow(label, x.device.type, tuple(x.shape), ms, loop_ms)


def _reference(x: Tensor, repeats: int) -> AugmentRow:
    """Time a bare grouped convolution with given weights, to compare with on this machine."""
    batch, channels, height, width = x.shape
    weight = torch.randn(batch * channels, 3, 3, 3, device=x.device, dtype=x.dtype)

    def convolve(x: Tensor) -> Tensor:
        padded = F.pad(x, (1, 1, 1, 1), mode="replicate").view(1, -1, height + 2, width + 2)
        return F.conv2d(padded, weight, groups=batch * channels // 3).sigmoid().view(x.shape)

    return AugmentRow(
        REFERENCE, x.device.type, tuple(x.shape), time_augmentation(convolve, x, repeats)
    )


def time_augmentation(function: Augment, x: Tensor, repeats: int, fast: bool = True) -> float:
    """The time of `function(x)` in milliseconds.

    On a GPU, `fast` compiles the function, captures it and times replays, which leaves out the
    host. Otherwise it is timed as it is, from call to completion.
    """
    if fast and x.device.type == "cuda":
        return _time_captured(function, x, repeats)

    def call() -> None:
        function(x)
        synchronise(x.device)

    return fastest_ms(call, repeats)


def _time_captured(function: Augment, x: Tensor, repeats: int) -> float:
    """Compile, capture in a CUDA graph, and time replays of the graph."""
    torch.compiler.reset()  # earlier functions must not count as recompilations
    compiled = torch.compile(function, dynamic=False, fullgraph=True)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):  # compile and allocate outside the capture
        for _ in range(3):
            compiled(x)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    calls = 10  # per replay, so that the start of a replay does not count
    with torch.cuda.graph(graph):
        for _ in range(calls):
            compiled(x)

    def replay() -> None:
        graph.replay()
        torch.cuda.synchronize()

    return fastest_ms(replay, repeats) / calls
