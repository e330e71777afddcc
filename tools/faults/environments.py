"""Environment processes that die, hang and leak."""

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from faults.profiles import TOY, children, config, memory, no_pictures
from faults.tally import Tally, each, expect
from toy import MISHAPS as KINDS
from whole_runs import digest

from svea.core.seeds import TRAINING, episode_seed
from svea.envs import make_env
from svea.envs.workers import pool
from svea.training import train, trainer

EPISODES = 6  # of each environment
ALONE = TOY | {"task": "toy:make_faulty", "envs": 1, "decisions": 60, "eval_every": 400}
SHARED = ALONE | {"envs": 3, "decisions": 180}  # all in one process
PROFILES = (ALONE, SHARED)
FAILURES = 4  # in one run; the budget is five
QUICK_HANG = 4.0  # seconds instead of 30, in all runs but one
PATIENT = 3  # that one: it has a stop and a hang


@each()
def worker_failures(case: int, random: np.random.Generator, run: Path, tally: Tally) -> None:
    """Several failures in one run: it ends bit for bit like one without.

    In every second run three environments share a process, which fails for all of them.
    """
    kinds = [KINDS[(FAILURES * case + k) % len(KINDS)] for k in range(FAILURES)]
    limit = pool.HANG_SECONDS if case == PATIENT else QUICK_HANG
    profile = PROFILES[case % 2]
    faults = []
    for clock, kind in zip(random.permutation(10).tolist(), kinds, strict=False):
        index, number = random.integers([profile["envs"], EPISODES]).tolist()
        faults.append((episode_seed(0, TRAINING, index, number), clock, kind))
    with Watch() as watch:
        train_with(faults, profile | {"step_timeout": limit}, run)
    happened = len(list(run.parent.glob(f"{run.name}-faults-*")))
    expect(happened == FAILURES, f"{happened} of {FAILURES} failures happened: {kinds}")
    expect(len(watch.delays) == FAILURES, f"{len(watch.delays)} failures were seen of {kinds}")
    for kind, delay in watch.delays.items():
        slow = kind in ("stop", "hang")
        expect(delay < (limit if slow else 0) + 5, f"{kind}: {delay:.1f} s")
        tally.measure(f"seconds until {'hangs' if slow else 'deaths'} were seen", delay)
    whole = run.with_name(f"whole-{case % 2}")
    if not whole.exists():
        train_with([], profile, whole)
    expect(digest(run) == digest(whole), "the run differs from one without failures")


class Watch:
    """Measures how long after its mark a failure is accounted for."""

    def __enter__(self) -> "Watch":
        self.delays: dict[str, float] = {}
        self.real = pool.Workers._account_for

        def account(workers: Any, index: int, error: Any, before: Any) -> None:
            path = Path(os.environ["SVEA_FAULTS"])
            marks = {mark: mark.stat().st_mtime for mark in path.parent.glob(f"{path.stem}-*")}
            newest = max(marks, key=lambda mark: marks[mark])
            kind = json.loads(path.read_text())[int(newest.name.rsplit("-", 1)[1])][2]
            self.delays[kind] = time.time() - marks[newest]
            self.real(workers, index, error, before)

        pool.Workers._account_for = account  # type: ignore[method-assign]
        return self

    def __exit__(self, *exception: object) -> None:
        pool.Workers._account_for = self.real  # type: ignore[method-assign]


def train_with(faults: list[Any], profile: dict[str, Any], run: Path) -> Path:
    """Train in environments that fail by a plan, all in one process."""
    plan = run.with_name(f"{run.name}-faults")
    plan.write_text(json.dumps(faults))
    os.environ["SVEA_FAULTS"] = str(plan)
    real = trainer.environments_per_process
    trainer.environments_per_process = lambda *_: 99
    try:
        return train(config(profile, run))
    finally:
        trainer.environments_per_process = real


def cycles(cases: range, seed: int, folder: Path) -> Tally:
    """Environments made and closed, here and in processes of their own: nothing piles up."""
    tally = Tally(skipped=no_pictures())
    task = "toy:make" if tally.skipped else "cartpole_swingup"

    def cycle() -> None:
        env = make_env(task, image_size=32)
        env.reset(seed=0)
        env.step(env.action_space.sample())
        env.close()

    def process_cycle() -> None:
        with pool.Workers([{"task": "toy:make", "image_size": 16}]) as workers:
            workers.reset([0])

    for make, every in ((cycle, 1), (process_cycle, 4)):
        for _ in range(3):  # caches fill
            make()
        before, count = held(), len(range(cases.start, cases.stop, every))
        with tally.case(f"{make.__name__} x {count}", count):
            for _ in range(count):
                make()
            after = held()
            grown = after.pop("memory") - before["memory"]
            tally.measure(f"KB kept per {make.__name__}", grown / count)
            for name, number in after.items():
                expect(number <= before[name], f"{name}: {before[name]} to {number}")
            few = count < 50  # caches of the simulator and the driver still fill
            expect(few or grown < 4096 + 8 * count, f"memory grew by {grown} KB in {count} cycles")
    return tally


def held() -> dict[str, int]:
    """What this process holds: numbers, and memory in KB."""
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
        "shared memory": len(os.listdir("/dev/shm")),
        "children": len(children(os.getpid())),
        "memory": memory(),
    }
