"""How long decisions take: of environments in every mode, and of training end to end."""

import itertools
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np

from svea import speed
from svea.bench import Row, peak_gigabytes, times_ms
from svea.config import configure
from svea.core.errors import UserError, above, at_least
from svea.envs import describe, expand_modes, make_env
from svea.training import Interrupt, open_trainer


def time_environments(
    tasks: Iterable[str],
    modes: Iterable[str],
    decisions: int = 100,
    resets: int = 20,
    **options: Any,
) -> list[Row]:
    """Time decisions and resets in every mode next to the first one, which should be `train`.

    Medians: `ms` of a decision, its simulator steps and one image; `extra` is how much more it
    costs than in the task's first mode, as a fraction; `relative` how many times as much as in the
    first row. Each reset has a new seed. Options are those of `make_env`.
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
    rows, first = list[Row](), dict[str, tuple[float, float]]()
    for (task, _), env, ms, reset in zip(names, envs, step_ms, reset_ms, strict=True):
        usual, usual_reset = first.setdefault(task, (ms, reset))
        mode = describe(env.unwrapped.provenance)  # type: ignore[attr-defined]
        row = {"task": task, "mode": mode, "ms": ms, "extra": ms / usual - 1}
        row |= {"relative": ms / step_ms[0], "reset_ms": reset}
        rows.append(row | {"extra_reset_ms": reset - usual_reset})
        env.close()
    return rows


def _reset(env: Any, seeds: Iterator[int]) -> None:
    env.reset(seed=next(seeds))


def _decide(env: Any, action: np.ndarray) -> None:
    """Make a decision, and begin a new episode if it was the last of one."""
    _, _, terminated, truncated, _ = env.step(action)
    if terminated or truncated:
        env.reset()


def time_training(seeds: list[int], seconds: float, **settings: Any) -> Row:
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
        row = {name: getattr(first, name) for name in ("task", "method", "encoder")}
        row |= {"speed": trainers[0].speed, "seeds": len(seeds), "envs": first.envs}
        row |= {"decisions": made, "seconds": elapsed, "decisions_per_second": made / elapsed}
        return row | {"device_memory_gb": peak_gigabytes(device)}
