"""Studies whose runs were never trained, only written down."""

import json
from pathlib import Path
from typing import Any

from svea.studies import Grid, PlannedRun, plan_runs

SHORT = {"decisions": 100}


def short(tasks: tuple[str, ...] = ("walker_walk",), **axes: Any) -> tuple[PlannedRun, ...]:
    return plan_runs([Grid(tasks, **axes)], SHORT)


def write_finished(study: Path, run: PlannedRun, decision: int | None = None) -> Path:
    """What a run leaves behind at a decision: a checkpoint and an evaluation."""
    at = run.decisions if decision is None else decision
    folder = study / "runs" / run.name
    (folder / "checkpoints" / f"{at:09d}").mkdir(parents=True)
    lines = [
        {"kind": "train", "decision": at, "seconds": 20.0, "critic_loss": 0.1},
        {"kind": "eval", "decision": at, "seconds": 21.0, "mode": "train", "return_mean": 7.5},
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def write_export(folder: Path, config: dict[str, Any]) -> None:
    """What `svea export` leaves behind, without weights."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config | {"files": {}}))


def write_journal(study: Path, run: PlannedRun, *outcomes: str, saved: int = -1) -> Path:
    """A journal of attempts that ended so, with the newest checkpoint at a decision."""
    path = study / "journal" / f"{run.name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    entries = [
        {"event": "end", "outcome": one, "saved": saved, "reason": f"why {one}"} for one in outcomes
    ]
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return path
