"""Studies of runs on the toy environment that take seconds, and what they must end with."""

import contextlib
import os
import sys
from pathlib import Path
from typing import Any

from processes import wait_for
from tiny_runs import TINY
from whole_runs import digest

from svea.config import flat
from svea.studies import Grid, PlannedRun, Study, open_study, plan_runs
from svea.studies.folder import read_journal


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
    """A digest of all that a run leaves behind."""
    return digest(study.folder / "runs" / run.name)


def process_of(study: Study, run: PlannedRun) -> tuple[int, int]:
    """The training process of a run that has logged something, and the one that it watches."""

    def find() -> tuple[int, int] | None:
        log = study.folder / "runs" / run.name / "metrics.jsonl"
        if not log.exists() or '"decision": 1' not in log.read_text():
            return None
        printed = str(study.folder / "journal" / f"{run.name}.log")
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_text(errors="replace").split("\0")
                is_one = "svea.studies.supervise:main" in words and run.name in words
                if is_one and os.readlink(entry / "fd" / "1") == printed:
                    return int(entry.name), int(words[words.index("svea.core.process") + 1])
        return None

    return wait_for(find, 120)


def starts(study: Study, run: PlannedRun) -> int:
    """How often a run was begun."""
    entries = read_journal(study.folder / "journal" / f"{run.name}.jsonl")
    return sum(entry["event"] == "start" for entry in entries)
