"""Copy the finished runs of a study to a folder of results/, with the origin of each.

    python scripts/publish.py runs/paper-mini results/mini [--agents-mb 30]

A run is copied once it is trained and has every episode of its plan: `config.json`, without paths
of the machine, `metrics.jsonl`, `eval.jsonl`, analyses and a new `provenance.json`. Acting parts
are kept at 8 bits in `exports/final/` until all together take the given size.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

from published_runs import PROVENANCE

from svea.core.files import size_of
from svea.runs import layout
from svea.runs.load import export, load_config
from svea.studies import PlannedRun, read_progress, read_study
from svea.studies.folder import journal_path, read_journal, run_folder

ROOT = Path(__file__).resolve().parents[1]
MB = 1_000_000


def main() -> None:
    """Publish what is finished and not yet there."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("study", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--agents-mb", type=float, default=30.0)
    parser.add_argument("--commit", default="HEAD", help="that trained and evaluated the runs")
    given = parser.parse_args()
    asked = ["git", "rev-parse", "--short", given.commit]
    commit = subprocess.check_output(asked, cwd=ROOT, text=True).strip()
    study = read_study(given.study)
    for run in study.runs:
        if read_progress(study.folder, run).done and not (given.out / run.name).exists():
            room = given.agents_mb * MB - sum(map(size_of, given.out.glob("*/exports")))
            publish(study.folder, run, given.out / run.name, commit, room > 0)
            print(run.name)


def publish(study: Path, run: PlannedRun, target: Path, commit: str, with_agent: bool) -> None:
    """Copy a run; one that is interrupted halfway leaves nothing under its name."""
    source, unfinished = run_folder(study, run), target.with_name(f".{target.name}")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    local = str(source)
    config = (source / layout.CONFIG).read_text().replace(local, f"runs/{run.name}")
    (unfinished / layout.CONFIG).write_text(config)
    for name in ("metrics.jsonl", "eval.jsonl"):
        shutil.copy(source / name, unfinished)
    if (source / "analysis").exists():
        shutil.copytree(
            source / "analysis", unfinished / "analysis",
            ignore=lambda _, names: [name for name in names if not name.endswith(".json")],
        )  # fmt: skip
    if with_agent:
        export(source, unfinished / "exports/final", small=True)
        kept = unfinished / "exports/final" / layout.CONFIG
        kept.write_text(kept.read_text().replace(local, f"runs/{run.name}"))
    about = origin(study, run, commit) | {
        "weights": "exports/final" if with_agent else "not kept: see results/README.md"
    }
    (unfinished / PROVENANCE).write_text(json.dumps(about, indent=1) + "\n")
    unfinished.rename(target)


def origin(study: Path, run: PlannedRun, commit: str) -> dict[str, Any]:
    """What provenance.json says."""
    source = run_folder(study, run)
    config, entries = load_config(source), read_journal(journal_path(study, run))
    lines = [json.loads(line) for line in (source / "metrics.jsonl").read_text().splitlines()]
    records = [json.loads(line) for line in (source / "eval.jsonl").read_text().splitlines()]
    used = [entry["processor_seconds"] for entry in entries if entry["event"] == "used"]
    shown = dict.fromkeys(f"{r['mode']}: {r['provenance']['source']}" for r in records)
    return {
        "commit": commit,
        "command": str(json.loads((source / layout.CONFIG).read_text())["command"]).replace(
            str(source), f"runs/{run.name}"
        ),
        "made_by": "svea paper, two runs at a time at low priority next to other programs",
        "machine": {
            "gpu": "none",
            "cpu": cpu(),
            "python": platform.python_version(),
            **{name: version(name) for name in ("torch", "numpy", "mujoco")},
        },
        "precision": "float32, compiled updates, one thread",
        "asked_for_decisions": config.decisions,
        "reached_decisions": max(line["decision"] for line in lines),
        "stopped_by": "its end",
        "wall_seconds": round(max(line["seconds"] for line in lines), 1),
        **({"processor_seconds": round(sum(used), 1)} if used else {}),
        "data": "; ".join(shown),
        "evaluation": f"by the same command, pictures by {records[0]['provenance']['renderer']}",
    }


def cpu() -> str:
    """The processor's name."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(": ")[2] for line in lines if line.startswith("model name")]
    return f"{names[0]}, {len(names)} cores"


if __name__ == "__main__":
    main()
