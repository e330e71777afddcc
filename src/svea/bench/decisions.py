"""How long decisions take: of environments in every mode, and of training end to end."""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from svea import speed
from svea.bench.timing import peak_gigabytes, times_ms
from svea.config import configure
from svea.core.errors import UserError, above, at_least
from svea.envs import describe, expand_modes, make_env
from svea.training import Interrupt, open_trainer


@dataclass(frozen=True)
class EnvRow:
    """The cost of one mode of one task: medians, in milliseconds.

    A decision is its simulator steps and one image. `extra` is how much more it costs than in the
    task's first mode, as a fraction; `relative` how many times as much as in the first row.
    """

    task: str
    mode: str
    ms: float
    extra: float
    relative: float
    reset_ms: float
    extra_reset_ms: float


def time_environments(
    tasks: Iterable[str],
    modes: Iterable[str],
    decisions: int = 100,
    resets: int = 20,
    **options: Any,
) -> list[EnvRow]:
    """Time decisions and resets in every mode next to the first one, which should be `train`.

    Each reset has a new seed. Options are those of `make_env`.
    """
    at_least(1).check("decisions", decisions)
    at_least(1).check("resets", resets)
    names = [(task, mode) for task in tasks for mode in expand_modes(modes, task)]
    if not names:
        raise UserError("no task is named; allowed: one or several, e.g. walker_walk")
    envs = [make_env(task, mode, **options) for task, mode in names]
    resetting = [partial(_reset, each, itertools.count()) for each in envs]
    reset_ms = np.median(times_ms(resetting, resets), axis=0).tolist()
    still = [np.zeros(each.action_space.shape or (), np.float32) for each in envs]
    decide = [partial(_decide, each, action) for each, action in zip(envs, still, strict=True)]
    step_ms = np.median(times_ms(decide, decisions), axis=0).tolist()
    rows, first = list[EnvRow](), dict[str, tuple[float, float]]()
    for (task, _), env, ms, reset in zip(names, envs, step_ms, reset_ms, strict=True):
        usual, usual_reset = first.setdefault(task, (ms, reset))
        mode = describe(env.unwrapped.provenance)  # type: ignore[attr-defined]
        extra, relative = ms / usual - 1, ms / step_ms[0]
        rows.append(EnvRow(task, mode, ms, extra, relative, reset, reset - usual_reset))
        env.close()
    return rows


def _reset(env: Any, seeds: Iterator[int]) -> None:
    env.reset(seed=next(seeds))


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


def time_training(seeds: list[int], seconds: float, **settings: Any) -> TrainRow:
    """Train for a while in a temporary folder, and count decisions."""
    if not seeds:
        raise UserError("no seed is named; allowed: one or several, e.g. 0-4")
    above(0).check("seconds", seconds)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        configs = [
            configure(
                seed=seed, out=f"{folder}/{seed}", overlay_dir="procedural", decisions=10**6,
                replay=20_000, warmup=max(200, settings["envs"]), **settings,
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
        first, device = trainers[0].config, trainers[0].device
        runs = [(each.turns(), speed.lane(device, n)) for n, each in enumerate(trainers)]
        began, before = 0.0, 0
        while not began or time.perf_counter() - began < seconds:
            for turns, stream in runs:
                with stream:
                    next(turns)
            if not began and all(t.updates > 400 + 8 * first.envs for t in trainers):
                speed.synchronise(device)
                began, before = time.perf_counter(), sum(t.decision for t in trainers)
        speed.synchronise(device)
        elapsed = time.perf_counter() - began
        made = sum(trainer.decision for trainer in trainers) - before
        return TrainRow(
            first.task, first.method, first.encoder, trainers[0].speed, len(seeds), first.envs,
            made, elapsed, made / elapsed, peak_gigabytes(device),
        )  # fmt: skip
