"""Updates on a CPU: as `svea train` makes them, in plain PyTorch, and those of another commit.

Processes with the same number of threads alternate, so that other work affects all alike:

- *plain*: SVEA as one would write it in PyTorch (`benchmarks/plain.py`), with torch's defaults;
- *written*: svea's own update as it is written (`agent.update`), with torch's defaults;
- *fast*: what `svea train --speed auto` does with it;
- *before*: the same with the code of another working tree, if one is given (`git worktree add`).

Before anything is timed, plain and fast make some updates from the same weights with the same
draws, and must come to the same losses.

    python benchmarks/cpu.py [--rounds 12] [--updates 6] [--threads 1] [--size quick|paper]
                             [--before TREE]

`--threads 0` leaves the number to each, as `svea train` does where OMP_NUM_THREADS is not set.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from plain import PlainSVEA

from svea.agents import make_agent
from svea.bench import ACTIONS, machine, noise_replay
from svea.config import configure
from svea.core.machine import usable_cores
from svea.speed import Learner, choose_speed

CPU = torch.device("cpu")
KINDS = ("plain", "written", "fast", "before")
SIZES: dict[str, dict[str, Any]] = {
    "quick": {"preset": "quick"},
    "paper": {"batch_size": 32},
}


def updater(kind: str, size: str) -> Callable[[int], dict[str, torch.Tensor]]:
    """A function that samples and updates in this way; all start from one state."""
    config = configure("walker_walk", **SIZES[size])
    agent, replay = make_agent(config, ACTIONS), noise_replay(config, CPU, decisions=1_000)
    if kind in ("fast", "before"):
        speed = choose_speed("auto", CPU)
        return Learner(agent, replay, config.batch_size, speed=speed).step
    if kind == "plain":
        plain = PlainSVEA(config, agent)
        return lambda decision: plain.update(replay.sample(config.batch_size), decision)
    return lambda decision: agent.update(replay.sample(config.batch_size), agent.schedule(decision))


def check(size: str) -> None:
    """Plain and fast updates come to the same losses."""
    plain, fast = updater("plain", size), updater("fast", size)
    # Eleven layers magnify rounding: after Adam's first step plain and written differ by 0.3 %.
    for decision in range(1 if size == "paper" else 6):
        wanted, found = plain(decision), fast(decision)
        for name, loss in wanted.items():
            torch.testing.assert_close(found[name], loss, rtol=1e-4, atol=1e-5, msg=name)


def serve(kind: str, size: str, updates: int) -> None:
    """A child: on every line it reads, time some updates and answer with milliseconds each.

    They are of wall time, or of processor time where there is one thread: other work on the machine
    changes that less.
    """
    update = updater(kind, size)
    one_thread = os.environ.get("OMP_NUM_THREADS") == "1"
    clock = time.process_time if one_thread else time.perf_counter
    for decision in range(4):
        update(decision)
    print(torch.get_num_threads(), flush=True)
    for _ in sys.stdin:
        began = clock()
        for decision in range(updates):
            update(decision)
        print(1e3 * (clock() - began) / updates, flush=True)


def main() -> None:
    """Let all take turns, and print the medians and the medians of the rounds' ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--serve", choices=KINDS, help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--updates", type=int, default=6)
    parser.add_argument("--threads", type=int, default=max(1, usable_cores() - 1))
    parser.add_argument("--size", choices=SIZES, default="quick")
    parser.add_argument("--before", type=Path, help="a working tree of another commit")
    options = parser.parse_args()
    if options.serve:
        return serve(options.serve, options.size, options.updates)
    check(options.size)
    environment = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
    if options.threads:
        environment["OMP_NUM_THREADS"] = str(options.threads)
    command = [sys.executable, __file__, "--updates", str(options.updates), "--size", options.size]
    children = {}
    for kind in KINDS if options.before else KINDS[:-1]:
        tree = options.before if kind == "before" else Path(__file__).parents[1]
        children[kind] = subprocess.Popen(
            [*command, "--serve", kind],
            env=environment | {"PYTHONPATH": str(tree.resolve() / "src")},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
        )  # fmt: skip
    for child in children.values():
        assert int(child.stdout.readline()) == options.threads or not options.threads
    times: dict[str, list[float]] = {kind: [] for kind in children}
    for _ in range(options.rounds):
        for kind, child in children.items():
            child.stdin.write("go\n")
            times[kind].append(float(child.stdout.readline()))
    for child in children.values():
        child.stdin.close()
        child.wait()
    kind_of_time = "processor time" if options.threads == 1 else "wall time"
    threads = options.threads or "their own number of"
    print(f"size {options.size}, {threads} thread(s), "
          f"{kind_of_time} · {machine()}")  # fmt: skip
    for kind, found in times.items():
        ratios = [other / own for other, own in zip(found, times["fast"], strict=True)]
        print(f"{kind:8} median {statistics.median(found):6.1f} ms, best {min(found):6.1f}; "
              f"takes {statistics.median(ratios):.2f} times as long as fast "
              f"(rounds: {min(ratios):.2f} to {max(ratios):.2f})")  # fmt: skip


if __name__ == "__main__":
    main()
