"""Memory: what a run needs is what was said, and a long run takes no more than a short one."""

import contextlib
import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from faults.environments import held
from faults.profiles import CARTPOLE, TOY, children, config, memory, no_pictures
from faults.tally import Tally, expect
from whole_runs import metrics

from svea.core.files import last_lines, parse_line
from svea.training import train

MOST_GROWTH = 10 * 1024  # KB in all, after the first quarter
FEWEST_SAMPLES = 20  # a shorter run tells nothing about growth

SOAK = TOY | {
    "replay": 2_000,
    "eval_every": 20_000,
    "log_every": 1_000,
    "save_every": 5_000,
    "batch_size": 4,
}
RENDERED = CARTPOLE | {
    "replay": 1_000,
    "eval_every": 1_000,
    "eval_mode": "color_hard",
    "save_every": 500,
    "log_every": 250,
    "batch_size": 4,
}


def soak(cases: range, seed: int, folder: Path) -> Tally:
    """A long run of the toy, in thousands of decisions."""
    return endure(SOAK | {"decisions": 1000 * len(cases)}, folder / "soak")


def rendered_soak(cases: range, seed: int, folder: Path) -> Tally:
    """A long run with rendering, in hundreds of decisions."""
    if why := no_pictures():
        return Tally(skipped=why)
    return endure(RENDERED | {"decisions": 100 * len(cases)}, folder / "rendered")


def endure(profile: dict[str, Any], run: Path) -> Tally:
    """Train, and watch memory, descriptors and processes grow or not."""
    tally, samples, done = Tally(), list[dict[str, int]](), threading.Event()

    def watch() -> None:
        while not done.wait(2.0):
            workers = children(os.getpid())
            sizes = {"workers": sum(map(memory, workers)), "sockets": listening(workers)}
            samples.append(held() | sizes | {"decision": newest(run)})

    watcher = threading.Thread(target=watch, daemon=True)
    began = time.monotonic()
    with tally.case(f"{profile['decisions']} decisions", profile["decisions"]):
        watcher.start()
        try:
            train(config(profile, run))
        finally:
            done.set()
            watcher.join()
        tally.measure("decisions per second", profile["decisions"] / (time.monotonic() - began))
        logged = [line["decision"] for line in metrics(run)]
        expect(logged == sorted(logged) and logged[-1] == profile["decisions"], "log out of order")
        expect(not any(s["sockets"] for s in samples), "a socket was listening")
        steady = [s for s in samples if s["decision"] >= profile["decisions"] / 4]
        if len(steady) >= FEWEST_SAMPLES:
            for name in ("memory", "workers"):
                grown = growth([sample[name] for sample in steady])
                tally.measure(f"KB that {name} grew by", grown)
                expect(grown < MOST_GROWTH, f"{name} grew by {grown:.0f} KB")
            grown = growth([sample["descriptors"] for sample in steady])
            expect(grown < 3, f"descriptors grew by {grown:.1f}")
    return tally


def newest(run: Path) -> int:
    """The last decision in a run's log."""
    whole = filter(None, map(parse_line, reversed(last_lines(run / "metrics.jsonl"))))
    return next(whole, {"decision": 0})["decision"]


def growth(values: list[int]) -> float:
    """The rise of the straight line through values, from the first to the last."""
    slope = np.polyfit(np.arange(len(values)), values, 1)[0]
    return float(slope * (len(values) - 1))


def listening(workers: list[int]) -> int:
    """Sockets on which this process or its workers wait for strangers."""
    waiting = set()
    for table in ("tcp", "tcp6", "udp", "udp6"):
        path = Path(f"/proc/net/{table}")
        for line in path.read_text().splitlines()[1:] if path.exists() else []:
            fields = line.split()
            if fields[3] == "0A" or table.startswith("udp"):
                waiting.add(f"socket:[{fields[9]}]")
    count = 0
    for pid in (os.getpid(), *workers):
        for link in Path(f"/proc/{pid}/fd").glob("*"):
            with contextlib.suppress(OSError):
                count += os.readlink(link) in waiting
    return count


torch.set_num_threads(1)
