"""Pictures drawn by the rasteriser next to MuJoCo's: a decision's time, and how much they differ.

    python benchmarks/pictures.py                        # the paper's tasks, three more, the robot
    python benchmarks/pictures.py --tasks walker_walk robot_push --modes all --decisions 200

All modes of a task are drawn both ways in turn, from the same random actions, in one process. Times
are those of the processor for a whole decision, in ms and in the median, and how many times that is
what `train` takes; other work on the machine lengthens all of them. Differences are the shares of
pixels whose largest channel is more than 0, 2 and 8 levels away.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

from svea.bench import machine
from svea.config.modes import ROBOT_TASKS
from svea.envs import PAPER_TASKS, expand_modes, make_env

LEVELS = (0, 2, 8)
WAYS = ("opengl", "raster")  # MuJoCo, ours


def main() -> None:
    """Measure each of the tasks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    others = ["cheetah_run", "reacher_easy", "hopper_hop"]
    parser.add_argument("--tasks", nargs="+", default=[*PAPER_TASKS, *others, *ROBOT_TASKS])
    parser.add_argument("--modes", nargs="+", default=["train"])
    parser.add_argument("--decisions", type=int, default=50)
    parser.add_argument("--size", type=int, default=84)
    options = parser.parse_args()
    print(machine())
    away = "".join(f"{f'>{level}':>9}" for level in LEVELS)
    print(f"{'task and mode':44}{'MuJoCo':>8}{'ours':>8}{'of train':>9}{away}  most")
    for task in options.tasks:
        modes = expand_modes(["train", *options.modes], task)
        measure(task, modes, options.decisions, options.size)


def measure(task: str, modes: list[str], decisions: int, size: int) -> None:
    """Print a task's lines of the table."""
    envs: dict[tuple[str, str], Any] = {}
    for way in WAYS:
        for mode in modes:
            envs[mode, way] = make_env(task, mode, seed=0, image_size=size, renderer=way)
            envs[mode, way].reset(seed=0)
    taken: dict[tuple[str, str], list[float]] = {which: [] for which in envs}
    away: dict[str, list[np.ndarray]] = {mode: [] for mode in modes}
    rng, space = np.random.default_rng(0), envs["train", "raster"].action_space
    for _ in range(decisions):
        action, seen = rng.uniform(-1, 1, space.shape).astype(np.float32), {}
        for which, env in envs.items():
            began = time.thread_time()
            observation, _, terminated, truncated, _ = env.step(action)
            taken[which].append(1e3 * (time.thread_time() - began))
            seen[which] = observation[-3:].astype(int)
            if terminated or truncated:
                env.reset()
        for mode in modes:
            away[mode].append(abs(seen[mode, "opengl"] - seen[mode, "raster"]).max(0))
    train = np.median(taken["train", "raster"])
    for mode in modes:
        mujocos, ours = (np.median(taken[mode, way]) for way in WAYS)
        shares = "".join(f"{np.mean(np.stack(away[mode]) > level):9.3%}" for level in LEVELS)
        left = envs[mode, "raster"].unwrapped._scene.renderer.drawn <= decisions // 2
        said = "  MuJoCo draws it" if left else f"{shares}{np.max(away[mode]):6}"
        print(
            f"{f'{task} {mode}':44}{mujocos:8.2f}{ours:8.2f}{ours / train:9.2f}{said}", flush=True
        )
    for env in envs.values():
        env.close()


if __name__ == "__main__":
    main()
