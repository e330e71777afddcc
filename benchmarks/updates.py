"""Updates of several settings in turn: what an augmentation, an encoder or a method costs.

    python benchmarks/updates.py                                   # the usual five
    python benchmarks/updates.py augment=conv augment=overlay encoder=frames --turns 4
    python benchmarks/updates.py augment=conv method=madi,batch_size=64 --profile 16
    python benchmarks/updates.py --preset quick --repeats 3        # a CPU's, in minutes
    python benchmarks/updates.py augment=conv --at-once 1 2 3 5    # several runs' on one GPU

A setting is options of `svea train` with commas between them. All are made, compiled and captured
first; then they take turns, so that whatever else the machine does hits all of them. Times are
medians, sampling included; the ratio is to the first setting. `--profile N` adds where the time of
N updates goes on a GPU, by the kernels' names: kernels that run next to each other count twice.
With `--at-once` runs of the first setting take turns instead, each in a stream of its own as with
`svea train --seeds 0-4`. `svea bench train --seeds 0-4` adds environments and the host.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import time
from collections import defaultdict
from typing import Any

import torch

from svea import configure, speed
from svea.agents import make_agent
from svea.bench import ACTIONS, machine, median_ms, noise_replay
from svea.config.presets import parse_settings

USUAL = ("augment=conv", "augment=overlay", "augment=overlay_drift", "encoder=frames", "method=drq")
CYCLE = 4  # updates: with and without a step of the policy and of the target
SHOWN = 16  # kernels of a profile
WARM = 16  # updates of each of several runs: every kind is captured


def main() -> None:
    """Make every setting's learner, then time them in turn."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("settings", nargs="*", default=USUAL)
    parser.add_argument("--preset", default="paper")
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=20, help=f"of {CYCLE} updates in a turn")
    parser.add_argument("--profile", type=int, default=0, metavar="N")
    parser.add_argument("--at-once", type=int, nargs="+", default=[], metavar="RUNS")
    parser.add_argument("--rounds", type=int, default=120, help="of updates of runs at once")
    options = parser.parse_args()
    device = speed.choose_device("auto")
    print(machine())
    if options.at_once:
        setting = {"preset": options.preset} | parse_settings(options.settings[0].split(","))
        return time_at_once(options.at_once, options.rounds, device, **setting)
    learners = {}
    for setting in options.settings:
        began = time.perf_counter()
        settings = parse_settings(setting.split(","))
        learners[setting] = made = learner(device, preset=options.preset, **settings)
        for _ in range(speed.WARM_UP + 1):
            cycle(made)
        seconds = time.perf_counter() - began
        print(f"{setting}: {made.speed} after {seconds:.1f} s", flush=True)
    times: dict[str, list[float]] = {setting: [] for setting in learners}
    for _ in range(options.turns):
        for setting, each in learners.items():
            taken = median_ms(functools.partial(cycle, each), device, options.repeats)
            times[setting].append(taken / CYCLE)
    first = statistics.median(next(iter(times.values())))
    for setting, each_turns in times.items():
        middle = statistics.median(each_turns)
        turns = " ".join(f"{one:.3f}" for one in each_turns)
        print(f"{setting:32} {middle:8.3f} ms, {middle / first:.3f} of the first ({turns})")
    for setting, each in learners.items() if options.profile else ():
        print_profile(setting, each, options.profile)


def time_at_once(counts: list[int], rounds: int, device: torch.device, **setting: Any) -> None:
    """Time updates of runs that take turns, as many as asked for at once."""
    learners = [learner(device, seed=seed, **setting) for seed in range(max(counts))]
    lanes = [speed.lane(device, number) for number in range(len(learners))]
    take_turns(learners, lanes, WARM, device)
    for count in counts:
        each = take_turns(learners[:count], lanes[:count], rounds, device) / rounds / count
        print(f"{count} at once: {1 / each:.1f} updates/s in all, {1e3 * each:.3f} ms each")


def learner(device: torch.device, **settings: Any) -> speed.Learner:
    """The learner of a run with these options, with a replay of noise."""
    config = configure("walker_walk", **{"overlay_dir": "procedural"} | settings)
    agent, replay = make_agent(config, ACTIONS, device), noise_replay(config, device)
    precision, how = speed.choose_precision("auto", device), speed.choose_speed("auto", device)
    return speed.Learner(agent, replay, config.batch_size, precision=precision, speed=how)


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


def cycle(made: speed.Learner) -> None:
    """Updates of every kind."""
    for decision in range(CYCLE):
        made.step(decision)


def print_profile(setting: str, made: speed.Learner, updates: int) -> None:
    """Sums of kernels' times in an update."""
    kinds = torch.profiler.ProfilerActivity
    with torch.profiler.profile(activities=[kinds.CPU, kinds.CUDA]) as profiler:
        for decision in range(updates):
            made.step(decision)
        speed.synchronise(made.agent.device)
    sums: dict[str, float] = defaultdict(float)
    for event in profiler.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            sums[event.name] += event.device_time / updates
    print(f"{setting}: {sum(sums.values()):.0f} µs of kernels in an update")
    for name, taken in sorted(sums.items(), key=lambda item: -item[1])[:SHOWN]:
        print(f"  {taken:7.1f}  {name[:90]}")


if __name__ == "__main__":
    main()
