"""How long decisions take: of environments in every mode, and of training end to end."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from svea import speed
from svea.bench.timing import median_ms_in_turns
from svea.config import configure
from svea.core.errors import UserError
from svea.envs import describe, expand_modes, make_env
from svea.training import Interrupt, open_trainer


@dataclass(frozen=True)
class EnvRow:
    """The cost of one mode of one task: medians, in milliseconds.

    Attributes:
        task: The task.
        mode: The mode, and where its images come from.
        ms: A decision: its simulator steps and one image.
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


def time_environments(
    tasks: Iterable[str] = ("walker_walk", "cartpole_swingup", "robot_reach"),
    modes: Iterable[str] = ("all",),
    decisions: int = 100,
    resets: int = 20,
    size: int = 84,
    rendering: str = "full",
    data_dir: str | None = None,
) -> list[EnvRow]:
    """Time decisions and resets in every mode next to the first one, which should be `train`.

    Args:
        tasks: Which tasks; the others are compared with the first.
        modes: Which modes, or groups of them.
        decisions: Measured decisions of each.
        resets: Measured resets of each, with a new seed every time.
        size: Side of the observation in pixels.
        rendering: `full` or `fast`.
        data_dir: Folder with the benchmark's data; generated data without one.
    """
    if decisions < 1 or resets < 1:
        raise UserError(f"decisions is {decisions} and resets is {resets}; both must be 1 or more")
    options: dict[str, Any] = {"image_size": size, "rendering": rendering, "data_dir": data_dir}
    names = [(task, mode) for task in tasks for mode in expand_modes(modes, task)]
    if not names:
        raise UserError("no task is named; allowed: one or several, e.g. walker_walk")
    envs = [make_env(task, mode, **options) for task, mode in names]
    reset_ms = median_ms_in_turns([each.reset for each in envs], resets, seeded=True)
    still = [np.zeros(each.action_space.shape or (), np.float32) for each in envs]
    decide = [partial(_decide, each, action) for each, action in zip(envs, still, strict=True)]
    step_ms = median_ms_in_turns(decide, decisions)
    first = {task: index for index, (task, _) in reversed(list(enumerate(names)))}
    rows = []
    for index, (task, _) in enumerate(names):
        ms, reset, base = step_ms[index], reset_ms[index], first[task]
        rows.append(
            EnvRow(
                task=task,
                mode=describe(envs[index].unwrapped.provenance),  # type: ignore[attr-defined]
                ms=ms,
                extra=ms / step_ms[base] - 1,
                relative=ms / step_ms[0],
                reset_ms=reset,
                extra_reset_ms=reset - reset_ms[base],
            )
        )
        envs[index].close()
    return rows


def _decide(env: Any, action: np.ndarray) -> None:
    """Make a decision, and begin a new episode if it was the last of one."""
    _, _, terminated, truncated, _ = env.step(action)
    if terminated or truncated:
        env.reset()


@dataclass(frozen=True)
class TrainRow:
    """Training end to end."""

    task: str
    method: str
    encoder: str
    speed: str
    seeds: int
    envs: int
    decisions: int
    seconds: float
    decisions_per_second: float
    device_memory_gb: float | None


def time_training(seeds: list[int], seconds: float, **settings: Any) -> list[TrainRow]:
    """Train for a while in a temporary folder, and count decisions."""
    if not seeds:
        raise UserError("no seed is named; allowed: one or several, e.g. 0-4")
    if seconds <= 0:
        raise UserError(f"seconds is {seconds:g}; allowed: more than 0")
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        configs = [
            configure(
                settings["task"], seed=seed, out=f"{folder}/{seed}", overlay_dir="procedural",
                decisions=10**6, replay=20_000, warmup=max(200, settings["envs"]),
                **{k: v for k, v in settings.items() if k != "task"},
            )
            for seed in seeds
        ]  # fmt: skip
        opened = [
            open_trainer(config, stack, Interrupt(), len(configs), learn_only=True)
            for config in configs
        ]
        trainers = [trainer for trainer in opened if trainer is not None]  # all: folders are new
        for trainer in trainers:
            trainer.begin()
        runs = []
        for number, trainer in enumerate(trainers):
            runs.append((trainer, trainer.turns(), speed.lane(trainer.device, number)))
        speed.synchronise(trainers[0].device)
        began, before = 0.0, 0
        while not began or time.perf_counter() - began < seconds:
            for _, turns, stream in runs:
                with stream:
                    next(turns)
            if not began and all(t.updates > 400 + 8 * t.config.envs for t in trainers):
                speed.synchronise(trainers[0].device)
                began, before = time.perf_counter(), sum(t.decision for t in trainers)
        speed.synchronise(trainers[0].device)
        elapsed = time.perf_counter() - began
        made = sum(trainer.decision for trainer in trainers) - before
        cuda = trainers[0].device.type == "cuda"
        memory = torch.cuda.max_memory_allocated() / 1e9 if cuda else None
        first = configs[0]
        row = TrainRow(
            first.task, first.method, first.encoder, trainers[0].speed, len(seeds), first.envs,
            made, elapsed, made / elapsed, memory,
        )  # fmt: skip
    return [row]
