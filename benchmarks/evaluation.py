"""How much longer an evaluation takes than its frames and its forward passes, each alone.

    python benchmarks/evaluation.py --modes all --episodes 10

Three things are timed for one untrained agent of the paper's size, with the same number of
environment processes: the evaluation as `svea eval` runs it, with the start of every process; the
same episodes without a policy; and the same number of forward passes without an environment. The
evaluation runs before and after its parts, so that other work on the machine affects all alike.
Processor time, of this process and its workers, is printed next to wall time; other work affects it
least. On a busy CPU set OMP_NUM_THREADS=1: threads that wait for each other lose much.
"""

from __future__ import annotations

import argparse
import math
import platform
import resource
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.torch import save_file

from svea.agents import make_agent
from svea.config import Config, configure, to_dict
from svea.core.files import replace_json
from svea.core.machine import usable_cores
from svea.core.seeds import evaluation_seeds
from svea.envs import expand_modes
from svea.envs.workers.pool import Workers
from svea.evaluation.play import parallel_environments, play
from svea.evaluation.requests import evaluate
from svea.runs import layout
from svea.runs.load import EXPORTED, load_agent

Seconds = NDArray[np.float64]
"""Of wall time and of processor time."""


def now() -> Seconds:
    """The two clocks; a worker's processor time counts when it has ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return np.array([time.perf_counter(), sum(one.ru_utime + one.ru_stime for one in used)])


def seconds(function: Callable[[], Any]) -> Seconds:
    """How long a call takes."""
    started = now()
    function()
    return now() - started


def untrained(config: Config, folder: Path) -> Path:
    """An export of an agent that has learned nothing: its forward passes cost the same."""
    with Workers([config.environment]) as workers:
        agent = make_agent(config, workers.action_size)
    state = agent.state_dict()
    for name, networks in EXPORTED.items():
        part = {k: v.contiguous() for k, v in state.items() if k.split(".")[0] in networks}
        save_file(part, folder / name)
    replace_json(folder / layout.CONFIG, to_dict(config) | {"files": {}})
    return folder


def frames_alone(config: Config, mode: str, episodes: int, count: int) -> Seconds:
    """The same episodes with an action that costs nothing; the processes' start is taken off."""
    environments = [config.environment_in(mode)] * count

    def start(seeds: list[int]) -> None:
        with Workers(environments) as workers:
            nothing = np.zeros((count, workers.action_size), np.float32)
            play(lambda observations, episodes: nothing, workers, seeds)

    return seconds(lambda: start(evaluation_seeds(0, episodes))) - seconds(lambda: start([]))


def forward_alone(agent: Any, config: Config, episodes: int, count: int) -> Seconds:
    """As many forward passes of the same batch as the evaluation makes."""
    shape = (count, 9, config.image_size, config.image_size)
    observations = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    agent.act(observations)
    passes = math.ceil(episodes / count) * config.episode_length
    return seconds(lambda: [agent.act(observations) for _ in range(passes)])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", default="walker_walk")
    parser.add_argument("--modes", nargs="+", default=["all"])
    parser.add_argument("--episodes", type=int, default=10)
    parser.add_argument("--envs", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    config = configure(options.task)
    modes, episodes = expand_modes(options.modes, options.task), options.episodes
    count = parallel_environments(options.envs, episodes)
    print(
        f"{platform.processor() or platform.machine()}, {usable_cores()} cores; {options.task} "
        f"at {config.image_size} px, {count} environments, {episodes} episodes per mode\n"
        f"{'seconds of':<28} wall  processor"
    )

    def show(name: str, took: Seconds) -> Seconds:
        print(f"  {name:<25} {took[0]:6.1f} {took[1]:8.1f}", flush=True)
        return took

    with tempfile.TemporaryDirectory() as folder:
        run = untrained(config, Path(folder))
        agent = load_agent(run, device=options.device)
        evaluation = partial(
            evaluate, run, modes, episodes, environments=options.envs, device=options.device
        )
        before = show("evaluation", seconds(evaluation))
        parts = np.zeros(2)
        for mode in modes:
            parts += show(f"{mode} frames", frames_alone(config, mode, episodes, count))
            parts += show(f"{mode} forward", forward_alone(agent, config, episodes, count))
        after = show("evaluation", seconds(evaluation))
    wall, processor = (before + after) / 2 / parts
    print(f"evaluation over its parts: {wall:.2f} in wall time, {processor:.2f} in processor time")


if __name__ == "__main__":
    main()
