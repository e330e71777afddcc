"""Kills and signals at random times: the same command continues, and nobody can tell."""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from faults.profiles import CARTPOLE, GPU, TOY, digest, finish, left_behind, metrics, start
from faults.tally import Tally, expect

from svea.runs import checkpoint

CHAIN = 5  # kills in a row, in every tenth run
GONE_SECONDS = 5.0


def kills(cases: range, seed: int, folder: Path) -> Tally:
    """SIGKILL at a uniformly random time, then the same command again; every tenth case a chain."""
    tally, references = Tally(), References(folder)
    for case in cases:
        random = np.random.default_rng([seed, 1, case])
        profile = CARTPOLE if case % 10 == 9 and draws_exactly() else TOY
        wanted, seconds = references.get(profile)
        times = CHAIN if case % 10 == 0 else 1
        run = folder / f"killed-{case}"
        with tally.case(f"kill {case}", times):
            for _ in range(times):
                kill_once(profile, run, float(random.uniform(0, seconds)), tally)
            resume(profile, run, wanted)
        shutil.rmtree(run, ignore_errors=True)
    return tally


def signals(cases: range, seed: int, folder: Path) -> Tally:
    """SIGINT and SIGTERM at random times: saved first, the documented exit code, then as above."""
    tally, references = Tally(), References(folder)
    for case in cases:
        random = np.random.default_rng([seed, 2, case])
        wanted, seconds = references.get(TOY)
        number = (signal.SIGINT, signal.SIGTERM)[case % 2]
        run = folder / f"stopped-{case}"
        with tally.case(f"{number.name} {case}"):
            stop_once(run, number, float(random.uniform(0, seconds)), tally)
            resume(TOY, run, wanted)
        shutil.rmtree(run, ignore_errors=True)
    return tally


def gpu_kills(cases: range, seed: int, folder: Path) -> Tally:
    """SIGKILL at a random time of a run on a GPU with --deterministic, then as above."""
    tally = Tally()
    if not torch.cuda.is_available():
        tally.skipped = "no NVIDIA GPU here"
        return tally
    wanted, _ = References(folder / "compiles").get(GPU)  # the first run waits for the compiler
    again, seconds = References(folder).get(GPU)
    with tally.case("two runs that nobody interrupts"):
        expect(again == wanted, "a run with --deterministic does not repeat itself")
    for case in cases:
        random = np.random.default_rng([seed, 3, case])
        run = folder / f"killed-{case}"
        with tally.case(f"kill {case} on a GPU"):
            kill_once(GPU, run, float(random.uniform(0, seconds)), tally)
            resume(GPU, run, wanted)
        shutil.rmtree(run, ignore_errors=True)
    return tally


def resume(profile: dict[str, Any], run: Path, wanted: str) -> None:
    """The same command again: it must end as a run that nobody interrupted, and leave no rests."""
    finish(profile, run)
    expect(digest(run) == wanted, "the resumed run differs from the uninterrupted one")
    expect(not left_behind(run), f"left behind: {left_behind(run)}")


class References:
    """What runs that nobody interrupts come to, and how long they take."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.known = folder, dict[str, tuple[str, float]]()

    def get(self, profile: dict[str, Any]) -> tuple[str, float]:
        """Digest and seconds of a profile's run."""
        task = profile["task"]
        if task not in self.known:
            run, began = self.folder / f"whole-{task.replace(':', '-')}", time.monotonic()
            finish(profile, run)
            self.known[task] = digest(run), time.monotonic() - began
        return self.known[task]


def kill_once(profile: dict[str, Any], run: Path, seconds: float, tally: Tally) -> None:
    """Start, wait, kill; then look at what is left."""
    process = start(profile, run)
    time.sleep(seconds)
    workers = children(process.pid)
    process.kill()
    process.communicate()
    killed = time.monotonic()
    while any(is_alive(pid) for pid in workers):
        expect(time.monotonic() - killed < GONE_SECONDS, "a worker outlived its parent")
        time.sleep(0.02)
    tally.measure("seconds until workers were gone", time.monotonic() - killed)
    if not run.exists():
        return
    saved = checkpoint.load(run)
    logged = [line["decision"] for line in metrics(run)]
    lost = max(logged, default=0) - (saved.decision if saved else 0)
    tally.measure("decisions lost to a kill", lost)
    expect(lost <= profile["save_every"], f"{lost} decisions were lost")


def stop_once(run: Path, number: signal.Signals, seconds: float, tally: Tally) -> None:
    """Start, wait, signal; the run must end in time, with its code, without a traceback."""
    process = start(TOY, run)
    time.sleep(seconds)
    began = time.monotonic()
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    tally.measure("seconds from signal to end", time.monotonic() - began)
    begun = (run / "metrics.jsonl").exists()
    if process.returncode == 0 or (process.returncode == -number and not begun):
        return  # it was done by then, or the system's own handler still stood
    expect(process.returncode == 128 + number, f"exit status {process.returncode}: {errors}")
    expect("Traceback" not in errors, errors)


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            found.append(int(stat.parent.name))
    return found


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that is dead but not yet asked about does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def can_draw() -> bool:
    """Whether this machine has the simulator and an OpenGL library."""
    from svea.core.errors import SveaError
    from svea.envs import prepare_simulator

    try:
        import dm_control  # noqa: F401

        prepare_simulator()
    except (ImportError, SveaError):
        return False
    return True


def draws_exactly() -> bool:
    """Whether pictures are the same each time: those of software are, a GPU's are not."""
    return can_draw() and os.environ.get("MUJOCO_GL") == "osmesa"
