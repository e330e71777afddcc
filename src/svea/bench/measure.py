"""Benchmarks: how long the parts take on this machine.

Every benchmark returns rows; `machine` names what they were measured on, so that a number never
stands without the device, the batch and the conditions that made it.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from svea.augment import AUGMENTATIONS, Augment
from svea.augment.images import ImageBank
from svea.errors import UserError, unknown_name
from svea.speed import choose_speed
from svea.speed.accelerate import with_kernels

REFERENCE = "grouped convolution"
"""The yardstick on any machine: padding, one grouped convolution and a sigmoid."""


@dataclass(frozen=True)
class Row:
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


def augment(
    names: Iterable[str] = (),
    device: str = "cpu",
    batch: int | None = None,
    size: int = 84,
    repeats: int = 50,
    bfloat16: bool = False,
) -> list[Row]:
    """Time every augmentation and, beside it, the naive loop over the samples.

    Args:
        names: Which augmentations; all when empty.
        device: `cpu` (in C where there is a kernel) or `cuda` (compiled, then captured in a CUDA
            graph): how an update runs them.
        batch: Samples in a batch; 64 on a CPU and 256 on a GPU when None.
        size: Height and width of the result in pixels; crop is given 16 more.
        repeats: Measurements, of which the fastest is reported.
        bfloat16: Give the observations as bfloat16, not float32.
    """
    if device == "cuda" and not torch.cuda.is_available():
        raise UserError("bench augment: no CUDA device here; use --device cpu")
    batch = (256 if device == "cuda" else 64) if batch is None else batch
    dtype = torch.bfloat16 if bfloat16 else torch.float32
    special: dict[str, dict[str, Any]] = {
        "crop": {"size": size},
        "overlay": {"images": ImageBank.procedural(device=device)},
    }
    for what, given in (("repeats", repeats), ("batch", batch), ("size", size)):
        if given < 1:
            raise UserError(f"{what} is {given}; allowed: 1 or more")
    names = [name.replace("-", "_") for name in names]
    for name in names:
        if name not in AUGMENTATIONS:
            raise unknown_name("augmentation", name, AUGMENTATIONS)
    rows = [_reference(torch.rand(batch, 9, size, size, device=device, dtype=dtype), repeats)]
    for name in names or AUGMENTATIONS:
        side = size + 16 if name == "crop" else size
        x = torch.rand(batch, 9, side, side, device=device, dtype=dtype)
        parameters = special.get(name, {})
        rows.append(_augmentation_row(name, x, parameters, repeats))
        if name == "shift":  # the replay hands bytes: shifting before converting moves fewer
            rows.append(_augmentation_row(name, (x * 255).byte(), parameters, repeats))
    return rows


@dataclass(frozen=True)
class EnvironmentRow:
    """The cost of one mode of one task: medians, in milliseconds.

    Attributes:
        task: The task.
        mode: The mode, and what its pictures are made with.
        ms: A decision: its simulator steps and one picture.
        extra: How much more that is than in the task's first mode, as a fraction.
        relative: How many times the first row's it is.
        reset_ms: A reset.
        extra_reset_ms: How much more that is than in the task's first mode.
    """

    task: str
    mode: str
    ms: float
    extra: float
    relative: float
    reset_ms: float
    extra_reset_ms: float


def env(
    tasks: Iterable[str] = ("walker_walk", "cartpole_swingup", "robot_reach"),
    modes: Iterable[str] = ("all",),
    decisions: int = 100,
    resets: int = 20,
    size: int = 84,
    rendering: str = "full",
    data_dir: str | None = None,
) -> list[EnvironmentRow]:
    """Time decisions and resets in every mode beside the first one, which should be `train`.

    All tasks and modes take turns with every decision, so that other work on the machine disturbs
    all alike.

    Args:
        tasks: Which tasks; the first is the yardstick of the others.
        modes: Which modes; `all` is all that a task has.
        decisions: Measured decisions of each.
        resets: Measured resets of each, with a new seed every time.
        size: Side of the observation in pixels.
        rendering: `full` or `fast`.
        data_dir: Folder with the benchmark's data; generated data without one.
    """
    from svea.envs import describe, expand_modes, make_env

    if decisions < 1 or resets < 1:
        raise UserError(f"decisions is {decisions} and resets is {resets}; both must be 1 or more")
    options: dict[str, Any] = {"image_size": size, "rendering": rendering, "data_dir": data_dir}
    names = [(task, mode) for task in tasks for mode in expand_modes(modes, task)]
    if not names:
        raise UserError("no task is named; allowed: one or several, e.g. walker_walk")
    envs = [make_env(task, mode, **options) for task, mode in names]
    reset_ms = _median_ms_in_turns([each.reset for each in envs], resets, seeded=True)
    still = [np.zeros(each.action_space.shape or (), np.float32) for each in envs]
    decide = [partial(_decide, each, action) for each, action in zip(envs, still, strict=True)]
    step_ms = _median_ms_in_turns(decide, decisions)
    first = {task: index for index, (task, _) in reversed(list(enumerate(names)))}
    rows = []
    for index, (task, _) in enumerate(names):
        ms, reset, yardstick = step_ms[index], reset_ms[index], first[task]
        rows.append(
            EnvironmentRow(
                task=task,
                mode=describe(envs[index].unwrapped.provenance),  # type: ignore[attr-defined]
                ms=ms,
                extra=ms / step_ms[yardstick] - 1,
                relative=ms / step_ms[0],
                reset_ms=reset,
                extra_reset_ms=reset - reset_ms[yardstick],
            )
        )
        envs[index].close()
    return rows


def _decide(env: Any, action: np.ndarray) -> None:
    """Take a decision; a new episode's beginning counts as a decision where one has ended."""
    _, _, terminated, truncated, _ = env.step(action)
    if terminated or truncated:
        env.reset()


def _median_ms_in_turns(
    calls: Sequence[Callable[..., object]], repeats: int, seeded: bool = False
) -> list[float]:
    """Time calls one after the other, again and again, after one round that does not count."""
    times = np.zeros((repeats + 1, len(calls)))
    for turn in range(repeats + 1):
        for index, call in enumerate(calls):
            start = time.perf_counter()
            call(seed=turn) if seeded else call()
            times[turn, index] = time.perf_counter() - start
    return [float(ms) for ms in 1e3 * np.median(times[1:], axis=0)]


def _augmentation_row(name: str, x: Tensor, parameters: dict[str, Any], repeats: int) -> Row:
    """Time one augmentation and its loop over single samples."""
    plain = AUGMENTATIONS[name].bind(**parameters)
    eager = choose_speed("auto", x.device) == "eager"
    fast = plain if eager else with_kernels(plain, x.device)

    def loop(x: Tensor) -> Tensor:
        return torch.cat([plain(sample[None]) for sample in x])

    label = name if x.is_floating_point() else f"{name} (uint8)"
    ms = measure(fast, x, repeats)
    loop_ms = measure(loop, x, max(3, repeats // 10), fast=False)
    return Row(label, x.device.type, tuple(x.shape), ms, loop_ms)


def _reference(x: Tensor, repeats: int) -> Row:
    """Time a bare grouped convolution with given weights, as a yardstick for this machine."""
    batch, channels, height, width = x.shape
    weight = torch.randn(batch * channels, 3, 3, 3, device=x.device, dtype=x.dtype)

    def convolve(x: Tensor) -> Tensor:
        padded = F.pad(x, (1, 1, 1, 1), mode="replicate").view(1, -1, height + 2, width + 2)
        return F.conv2d(padded, weight, groups=batch * channels // 3).sigmoid().view(x.shape)

    return Row(REFERENCE, x.device.type, tuple(x.shape), measure(convolve, x, repeats))


def measure(function: Augment, x: Tensor, repeats: int, fast: bool = True) -> float:
    """The time of `function(x)` in milliseconds.

    `fast` on a GPU compiles the function, captures it and times replays, which leaves out the host.
    Otherwise it is timed as it is, from call to completion.
    """
    if x.device.type == "cuda":
        return (
            _measure_captured(function, x, repeats) if fast else _measure_cuda(function, x, repeats)
        )
    return _fastest_ms(lambda: function(x), repeats)


def _fastest_ms(call: Callable[[], object], repeats: int) -> float:
    """Time a call on the host, after two calls that are not counted."""
    times = []
    for _ in range(repeats + 2):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return 1e3 * min(times[2:])


def _measure_cuda(function: Augment, x: Tensor, repeats: int) -> float:
    """Time eager calls on a GPU, each to its completion."""

    def call() -> None:
        function(x)
        torch.cuda.synchronize()

    return _fastest_ms(call, repeats)


def _measure_captured(function: Augment, x: Tensor, repeats: int) -> float:
    """Compile, capture in a CUDA graph, and time replays of the graph."""
    torch.compiler.reset()  # the last one's compilations must not count against this one's limit
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

    return _fastest_ms(replay, repeats) / calls


def machine() -> str:
    """The machine and its load, in one line."""
    load = f"load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "load unknown"
    host = (
        f"{platform.processor() or platform.machine()}, {torch.get_num_threads()} threads, {load}"
    )
    gpu = f"{torch.cuda.get_device_name()}, " if torch.cuda.is_available() else ""
    return f"{gpu}{host}, torch {torch.__version__}"
