"""The quick preset on a CPU: updates as `svea train` makes them beside the same updates plainly.

Two processes take turns, so that a noisy machine disturbs both alike. *Plain* is `agent.update` in
float32 with torch's defaults; the other has what `svea.speed` does for a CPU: threads, memory kept
by the C library, pixels with their channels together.

    python benchmarks/cpu.py [--rounds 12] [--updates 6]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time

import torch

from svea.agents import make_agent
from svea.bench import machine
from svea.config import configure
from svea.speed import Learner
from svea.update_bench import noise_replay


def serve(kind: str, updates: int) -> None:
    """A child: on every line it reads, time some updates and answer with milliseconds."""
    config = configure("walker_walk", preset="quick")
    cpu = torch.device("cpu")
    agent, replay = make_agent(config, 6), noise_replay(config, cpu)
    learner = Learner(agent, replay, config.batch_size) if kind == "fast" else None

    def update(decision: int) -> None:
        if learner:
            learner.update(decision)
        else:
            agent.update(replay.sample(config.batch_size), decision)

    for decision in range(4):
        update(decision)
    print(torch.get_num_threads(), flush=True)
    for _ in sys.stdin:
        began = time.perf_counter()
        for decision in range(updates):
            update(decision)
        print(1e3 * (time.perf_counter() - began) / updates, flush=True)


def main() -> None:
    """Let both take turns, and print the medians and the median of the rounds' ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", choices=("plain", "fast"), help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--updates", type=int, default=6)
    options = parser.parse_args()
    if options.serve:
        return serve(options.serve, options.updates)
    children = {
        kind: subprocess.Popen(
            [sys.executable, __file__, "--serve", kind, "--updates", str(options.updates)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
        )
        for kind in ("plain", "fast")
    }  # fmt: skip
    threads = {kind: int(child.stdout.readline()) for kind, child in children.items()}
    times: dict[str, list[float]] = {kind: [] for kind in children}
    for _ in range(options.rounds):
        for kind, child in children.items():
            child.stdin.write("go\n")
            times[kind].append(float(child.stdout.readline()))
    for child in children.values():
        child.stdin.close()
        child.wait()
    ratio = statistics.median(a / b for a, b in zip(times["plain"], times["fast"], strict=True))
    for kind, found in times.items():
        print(f"{kind:5} {statistics.median(found):7.1f} ms ({threads[kind]} threads, best "
              f"{min(found):.1f})")  # fmt: skip
    print(f"plain / fast: {ratio:.2f} (median of {options.rounds} rounds) · {machine()}")


if __name__ == "__main__":
    main()
