"""Updates of several settings in turn: what an augmentation, an encoder or a method costs.

    python benchmarks/updates.py                                   # those of docs/notes/speed.md
    python benchmarks/updates.py augment=conv augment=overlay encoder=frames --turns 4
    python benchmarks/updates.py augment=conv method=madi,batch_size=64 --profile 16
    python benchmarks/updates.py --preset quick --repeats 3        # a CPU's, in minutes

A setting is options of `svea train` with commas between them. All are made, compiled and captured
first; then they take turns, so that whatever else the machine does hits all of them. Times are
medians, sampling included; the ratio is to the first setting. `--profile N` adds where the time of
N updates goes on a GPU, by the kernels' names: kernels that run next to each other count twice.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import time
from collections import defaultdict

import torch
from lanes import learner

from svea import speed
from svea.bench.timing import machine, median_ms
from svea.config.presets import parse_settings

USUAL = ("augment=conv", "augment=overlay", "augment=overlay_drift", "encoder=frames", "method=drq")
CYCLE = 4  # updates: with and without a step of the policy and of the target
SHOWN = 16  # kernels of a profile


def main() -> None:
    """Make every setting's learner, then time them in turn."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("settings", nargs="*", default=USUAL)
    parser.add_argument("--preset", default="paper")
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=20, help=f"of {CYCLE} updates in a turn")
    parser.add_argument("--profile", type=int, default=0, metavar="N")
    options = parser.parse_args()
    device = speed.choose_device("auto")
    print(machine())
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
