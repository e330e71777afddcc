"""Studies of runs on the toy environment that take seconds, and what they must end with."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from tiny_runs import TINY

from svea.config import flat
from svea.studies import Grid, PlannedRun, Study, open_study, plan_runs

FINAL = ("critic_loss", "q_mean", "return", "return_mean", "returns", "actor_loss")


def tiny_runs(
    task: str = "toy:make", seeds: str = "0-2", modes: tuple[str, ...] = (), **changes: Any
) -> tuple[PlannedRun, ...]:
    values = flat({k: v for k, v in TINY.items() if k != "method"} | changes)
    return plan_runs([Grid([task], ["svea"], seeds=seeds)], values, modes=modes, episodes=2)


def tiny_study(folder: Path, *runs: PlannedRun, attempts: int = 3) -> Study:
    study = open_study(folder, runs or tiny_runs(), attempts=attempts)
    study.save()
    return study


def importable(monkeypatch: Any) -> None:
    """Let processes of the study import svea and the toy environment, on one thread each."""
    path = [p for p in sys.path if p]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def result(study: Study, run: PlannedRun) -> str:
    """A digest of what a run learned: its last weights, and every value it logged."""
    folder = study.run_folder(run)
    weights = folder / "checkpoints" / f"{run.decisions:09d}" / "agent.safetensors"
    digest = hashlib.sha256(weights.read_bytes())
    for line in (folder / "metrics.jsonl").read_text().splitlines():
        record = json.loads(line)
        kept = {k: v for k, v in record.items() if k in FINAL or k in ("kind", "decision")}
        digest.update(json.dumps(kept, sort_keys=True).encode())
    return digest.hexdigest()
