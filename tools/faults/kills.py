"""Kills and signals at random times: the same command continues, and nobody can tell."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
from faults.profiles import (
    CARTPOLE,
    GPU,
    TOY,
    children,
    finish,
    left_behind,
    no_gpu,
    no_pictures,
    reference,
    start,
)
from faults.tally import Tally, each, expect
from processes import alive, wait_for
from whole_runs import digest, metrics

from svea.runs import checkpoint

CHAIN = 5  # kills in a row, in every tenth run
GONE_SECONDS = 5.0


@each()
def kills(case: int, random: np.random.Generator, run: Path, tally: Tally) -> None:
    """SIGKILL at a uniformly random time, then the same command again; every tenth case a chain."""
    profile = CARTPOLE if case % 10 == 9 and draws_exactly() else TOY
    for _ in range(CHAIN if case % 10 == 0 else 1):
        kill_once(profile, run, random, tally)
    resume(profile, run)


@each()
def signals(case: int, random: np.random.Generator, run: Path, tally: Tally) -> None:
    """SIGINT and SIGTERM at random times: saved first, the documented exit code, then as above."""
    number = (signal.SIGINT, signal.SIGTERM)[case % 2]
    process = start(TOY, run)
    time.sleep(random.uniform(0, reference(TOY, run.parent)[1]))
    began = time.monotonic()
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    tally.measure("seconds from signal to end", time.monotonic() - began)
    begun = (run / "metrics.jsonl").exists()
    # It may be done by then, or the system's own handler still stand.
    if process.returncode != 0 and (begun or process.returncode != -number):
        expect(process.returncode == 128 + number, f"exit status {process.returncode}: {errors}")
        expect("Traceback" not in errors, errors)
    resume(TOY, run)


@each(unless=no_gpu)
def gpu_kills(case: int, random: np.random.Generator, run: Path, tally: Tally) -> None:
    """SIGKILL at a random time of a run on a GPU with --deterministic, then as above."""
    first, _ = reference(GPU, run.parent / "compiles")  # waits for the compiler
    expect(reference(GPU, run.parent)[0] == first, "--deterministic does not repeat itself")
    kill_once(GPU, run, random, tally)
    resume(GPU, run)


def kill_once(
    profile: dict[str, Any], run: Path, random: np.random.Generator, tally: Tally
) -> None:
    """Start, wait, kill; then look at what is left."""
    _, seconds = reference(profile, run.parent)
    process = start(profile, run)
    time.sleep(random.uniform(0, seconds))
    workers = children(process.pid)
    process.kill()
    process.communicate()
    killed = time.monotonic()
    wait_for(lambda: not any(map(alive, workers)), GONE_SECONDS)  # no worker outlives its parent
    tally.measure("seconds until workers were gone", time.monotonic() - killed)
    if run.exists():
        saved = checkpoint.load(run)
        logged = [line["decision"] for line in metrics(run)]
        lost = max(logged, default=0) - (saved.decision if saved else 0)
        tally.measure("decisions lost to a kill", lost)
        expect(lost <= profile["save_every"], f"{lost} decisions were lost")


def resume(profile: dict[str, Any], run: Path) -> None:
    """The same command again: it must end as a run that nobody interrupted, and leave no rests."""
    finish(profile, run)
    wanted, _ = reference(profile, run.parent)
    expect(digest(run) == wanted, "the resumed run differs from the uninterrupted one")
    expect(not left_behind(run), f"left behind: {left_behind(run)}")


def draws_exactly() -> bool:
    """Whether pictures are the same each time: those of software are, a GPU's are not."""
    return os.environ.get("MUJOCO_GL") == "osmesa" and not no_pictures()
