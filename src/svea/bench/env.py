"""How long decisions and resets take, in every mode of a task."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from svea.bench.timing import median_ms_in_turns
from svea.core.errors import UserError
from svea.envs import describe, expand_modes, make_env


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
