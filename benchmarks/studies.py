"""Ten thousand runs that do nothing: what planning, scheduling and recording them costs.

    python benchmarks/studies.py [--runs 10000] [--out FOLDER] [--json FILE]

Every run goes through all that a real one does (plan, lock, journal, folder, state) in warm workers
of a Ray cluster on this machine; only the training process is replaced by a function that writes
what a finished run leaves behind. Needs `pip install '.[train,ray]'`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from svea.core.machine import usable_cores
from svea.studies import (
    Grid,
    PlannedRun,
    Study,
    estimate_cost,
    open_study,
    plan_runs,
    read_states,
    read_study,
)
from svea.studies import ray as engine
from svea.studies.engines import Resources

DECISIONS = 1000
CORES = usable_cores()


def nothing(call: Any, log: Path, must_stop: Callable[[], bool]) -> int:
    """Leave behind what training does, without training."""
    study, (planned,) = call.args
    run = study / "runs" / planned.name
    (run / "checkpoints" / f"{DECISIONS:09d}").mkdir(parents=True)
    stamp = {"decision": DECISIONS, "frame": 4 * DECISIONS, "seconds": 10.0}
    lines = [{"kind": "train", **stamp, "critic_loss": 0.1, "updates_per_second": 100.0}] * 20
    for mode in ("train", "color_hard"):
        returns = {"return_mean": 500.0, "return_std": 1.0, "returns": [500.0] * 30}
        lines.append({"kind": "eval", **stamp, "mode": mode, **returns, "episodes": 30})
    (run / "config.json").write_text(json.dumps({"task": planned.values["task"]}))
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return 0


def timed(work: Callable[[], object]) -> float:
    """Seconds that something takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def measure(folder: Path, count: int) -> dict[str, float | str]:
    """Plan, run half, forget everything, continue from the folders, and check the result."""
    began = time.perf_counter()
    grids = [Grid(["walker_walk", "walker_stand"], ["svea", "drq"], seeds=f"0-{count // 4 - 1}")]
    runs = plan_runs(grids, {"decisions": DECISIONS})
    study = open_study(folder, runs)
    study.save()
    planned = time.perf_counter() - began

    half, warming = len(runs) // 2, 2 * CORES
    with engine.connection(Resources()) as ray:
        warm_up = timed(lambda: run_all(ray, study, runs[:warming]))
        first = timed(lambda: run_all(ray, study, runs[warming:half]))
        began = time.perf_counter()
        again = read_study(folder)  # a new driver knows only the folders
        left = [state.run for state in read_states(again) if state.state != "done"]
        restart = time.perf_counter() - began
        assert len(left) == len(runs) - half
        second = timed(lambda: run_all(ray, again, left))
        workers = worker_memory(ray)
    status = timed(lambda: read_states(again))
    states = read_states(again)
    assert all(state.state == "done" for state in states)
    return {
        "runs": len(runs),
        "plan and write (s)": planned,
        "first runs, workers starting (s)": warm_up,
        "overhead per run, warm (ms)": 1000 * (first + second) / (len(runs) - warming),
        "restart from the folders (s)": restart,
        "status of all (s)": status,
        "cost estimate of all (s)": timed(lambda: estimate_cost(states, 2)),
        "driver's peak memory (MB)": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "a worker's peak memory (MB)": workers,
        "folder's size (MB)": sum(f.stat().st_size for f in folder.rglob("*")) / 1e6,
        "cores": CORES,
        "machine": platform.processor() or platform.machine(),
    }


def run_all(ray: Any, study: Study, runs: Sequence[PlannedRun]) -> None:
    """Bring runs to their end."""
    engine.run_on(ray, study, runs, Resources(), lambda: None, execute=nothing)


def worker_memory(ray: Any) -> float:
    """Peak resident megabytes of a warm worker."""

    def peak() -> float:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    return max(ray.get([ray.remote(peak).remote() for _ in range(CORES)]))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    folder = options.out or Path(tempfile.mkdtemp(prefix="svea-studies-"))
    # Workers find `nothing` by importing this file.
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    )
    import studies as this_file  # the module's own name, which workers can import

    try:
        found = this_file.measure(folder, options.runs)
    finally:
        if options.out is None:
            shutil.rmtree(folder, ignore_errors=True)
    for name, value in found.items():
        print(f"{name:<34} {value:,.3f}" if isinstance(value, float) else f"{name:<34} {value}")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
