"""Updates of several runs at once on one GPU, without environments.

    python benchmarks/lanes.py --learners 1 2 3 5 --rounds 120

Each run has a stream of its own, as `svea train --seeds 0-4` gives it. The difference between this
and `svea bench train --seeds 0-4` is what environments and the host cost.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import torch

from svea import configure, speed
from svea.agents import make_agent
from svea.bench.timing import ACTIONS, machine, noise_replay

WARM = 16  # updates of each run: every kind is captured


def main() -> None:
    """Time runs that take turns, as many as asked for at once."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--learners", type=int, nargs="+", default=[1, 2, 3, 5])
    parser.add_argument("--rounds", type=int, default=120)
    parser.add_argument("--method", default="svea")
    options = parser.parse_args()
    device = speed.choose_device("cuda")
    seeds = range(max(options.learners))
    learners = [learner(device, method=options.method, seed=seed) for seed in seeds]
    lanes = [speed.lane(device, number) for number in range(len(learners))]
    speed.synchronise(device)
    take_turns(learners, lanes, WARM, device)
    print(machine())
    for count in options.learners:
        seconds = take_turns(learners[:count], lanes[:count], options.rounds, device)
        each = seconds / options.rounds / count
        print(f"{count} at once: {1 / each:.1f} updates/s in all, {1e3 * each:.3f} ms each")


def learner(device: torch.device, **settings: Any) -> speed.Learner:
    """The learner of a run with these options, with a replay of noise."""
    config = configure("walker_walk", **{"overlay_dir": "procedural"} | settings)
    agent, replay = make_agent(config, ACTIONS, device), noise_replay(config, device)
    return speed.Learner(
        agent,
        replay,
        config.batch_size,
        precision=speed.choose_precision("auto", device),
        speed=speed.choose_speed("auto", device),
    )


def take_turns(
    learners: list[speed.Learner], lanes: list, rounds: int, device: torch.device
) -> float:
    """Seconds that some rounds of updates take."""
    speed.synchronise(device)
    began = time.perf_counter()
    for decision in range(rounds):
        for each, lane in zip(learners, lanes, strict=True):
            with lane:
                each.step(decision)
    speed.synchronise(device)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
