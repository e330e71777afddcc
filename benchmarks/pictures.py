"""Pictures drawn by a program of our own next to MuJoCo's: their time, and how much they differ.

    python benchmarks/pictures.py                                # the paper's tasks and three more
    python benchmarks/pictures.py --tasks walker_walk --states 200

Both draw the same states of an episode of random actions in turn, in one process. Times are those
of the processor, in ms and in the median, with all that Python does; other work on the machine
lengthens both. Differences are the shares of pixels whose largest channel is more than 0, 2 and 8
levels away.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

from svea.bench.timing import machine
from svea.envs import PAPER_TASKS
from svea.envs.rendering import Renderer, import_suite
from svea.envs.rendering.renderer import Context, configure_drawing

LEVELS = (0, 2, 8)


def main() -> None:
    """Measure each of the tasks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    others = ["cheetah_run", "reacher_easy", "hopper_hop"]
    parser.add_argument("--tasks", nargs="+", default=[*PAPER_TASKS, *others])
    parser.add_argument("--states", type=int, default=50)
    parser.add_argument("--size", type=int, default=84)
    options = parser.parse_args()
    print(machine())
    away = "".join(f"{f'>{level}':>9}" for level in LEVELS)
    print(f"{'task':20}{'MuJoCo':>8}{'ours':>8}{'times':>7}{away}  most")
    for task in options.tasks:
        print(f"{task:20}{measured(task, options.states, options.size)}", flush=True)


def measured(task: str, states: int, size: int) -> str:
    """A line of the table."""
    suite, rng = import_suite(), np.random.default_rng(0)
    domain, name = next(pair for pair in suite.ALL_TASKS if "_".join(pair) == task)
    world = suite.load(domain, name, task_kwargs={"random": 0})
    world.reset()
    renderers = [renderer(world.physics, size, raster) for raster in (False, True)]
    times, away = ([], []), []
    for _ in range(states):
        spec = world.action_spec()
        world.step(rng.uniform(spec.minimum, spec.maximum))
        pictures = []
        for one, taken in zip(renderers, times, strict=True):
            began = time.thread_time()
            pictures.append(one.draw())
            taken.append(1e3 * (time.thread_time() - began))
        away.append(abs(pictures[0].astype(int) - pictures[1]).max(-1))
    if renderers[1].drawn <= states // 2:
        return "  MuJoCo draws it"
    mujocos, ours = map(np.median, times)
    shares = "".join(f"{np.mean(np.stack(away) > level):9.3%}" for level in LEVELS)
    return f"{mujocos:8.2f}{ours:8.2f}{mujocos / ours:7.1f}{shares}{np.max(away):6}"


def renderer(physics: Any, size: int, raster: bool) -> Renderer:
    """A renderer that draws one way."""
    configure_drawing(Context(raster=raster))
    return Renderer(physics.model.ptr, physics.data.ptr, size=size)


if __name__ == "__main__":
    main()
