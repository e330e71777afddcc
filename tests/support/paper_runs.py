"""Finished runs of the paper's experiments, made up for tests."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from fake_runs import write_run

from svea.config import to_dict
from svea.paper.experiments import Edition
from svea.studies import PlannedRun

FULL = Edition()
SMALL, SMALLEST = Edition(0.01, seeds="0-1"), Edition(0.01, seeds="0")


def every_run(names: Iterable[str], edition: Edition = FULL) -> dict[str, PlannedRun]:
    """The runs behind several experiments, each once."""
    cells = [cell for name in names for cell in edition.experiment(name).runs(edition).values()]
    return {run.name: run for cell in cells for run in cell}


def write_results(
    folder: Path,
    run: PlannedRun,
    final: dict[str, float],
    seconds: float = 100.0,
    at: str = "runs",
) -> None:
    """A finished run with these mean returns."""
    config = to_dict(run.config)
    write_run(folder / at / run.name, **config, final=final, seconds=seconds)


def rewrite(path: Path, change: Callable[[Any], Any]) -> None:
    """Change every record of a file of JSON lines."""
    records = [json.loads(line) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(record | change(record)) + "\n" for record in records))
