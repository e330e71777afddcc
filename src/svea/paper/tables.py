"""The tables of an experiment: settings next to the paper's, intensities, Q-value gaps."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from svea.core.words import mean_std, number, significant
from svea.paper.experiments import Setting
from svea.paper.results import ExperimentResults
from svea.results.run import Run
from svea.results.stats import mean_and_std
from svea.results.tables import Cell, Column, Record, Row, Table
from svea.results.tables.results import ABOUT, record


def tables(found: ExperimentResults) -> list[Table]:
    """The tables of a page."""
    special = {"mean-intensities": _intensities, "q-gap": _gaps}
    kind = found.experiment.kind
    return [special[kind](found)] if kind in special else _final(found)


def _final(found: ExperimentResults) -> list[Table]:
    """One table per mode: tasks by settings, or settings by modes for a single task."""
    one = found.experiment
    if len(one.tasks) == 1:
        task = one.tasks[0]
        rows = {
            setting.label: [found.cell(task, setting, mode) for mode in one.modes]
            for setting in one.settings
        }
        return [_table(one.name, task, one.modes, rows)]
    heads = [setting.label for setting in one.settings]
    return [
        _table(
            f"{one.name}-{mode}",
            mode,
            heads,
            {task: [found.cell(task, s, mode) for s in one.settings] for task in one.tasks},
        )
        for mode in one.modes
    ]


def _intensities(found: ExperimentResults) -> Table:
    """Settings by intensity, the mean over tasks."""
    one = found.experiment
    rows = {s.label: [_over_tasks(found, s, mode) for mode in one.modes] for s in one.settings}
    heads = [mode.partition(":")[2] for mode in one.modes]
    return _table(one.name, "mean of tasks", heads, rows)


def _over_tasks(found: ExperimentResults, setting: Setting, mode: str) -> Cell:
    """The mean of all tasks; none as soon as one is missing."""
    tasks = found.experiment.tasks
    ours = mean_of_all([found.mean(task, setting, mode) for task in tasks])
    known = [found.papers(task, setting, mode) for task in tasks]
    means = [paper.mean for paper in known if paper is not None]
    paper = ABOUT + number(float(np.mean(means))) if len(means) == len(tasks) else ""
    return Cell(number(ours), paper=paper, value=ours)


def _gaps(found: ExperimentResults) -> Table:
    """The Q-value gap by augmentation, over runs."""
    gaps = gaps_by_augmentation(found.of(found.experiment.settings[0]))
    rows = {name: [Cell(mean_std(*mean_and_std(v), significant))] for name, v in gaps.items()}
    return _table(found.experiment.name, "augmentation", ["gap"], rows)


def _table(name: str, corner: str, heads: Sequence[str], rows: dict[str, list[Cell]]) -> Table:
    """A table with what its rows are in the corner."""
    columns = (Column(corner, kind="text"), *(Column(head) for head in heads))
    return Table(name, "", columns, tuple(Row((Cell(k), *cells)) for k, cells in rows.items()))


def records(found: ExperimentResults) -> list[Record]:
    """Every result unrounded, and the paper's numbers for which there is none yet."""
    one, rows = found.experiment, []
    about = {"what": f"final {one.unit}", "scale": found.scale.scale}
    for task in one.tasks:
        for setting in one.settings:
            for mode in one.modes:
                result, paper = found.result(task, setting, mode), found.papers(task, setting, mode)
                if result is not None:
                    rows.append(about | record(result))
                elif paper is not None:
                    where = {"task": task, "setting": setting.label, "mode": mode, "seeds": 0}
                    values = {"paper_mean": paper.mean, "paper_std": paper.std}
                    rows.append(about | where | values)
    return rows


def gaps_by_augmentation(runs: Sequence[Run]) -> dict[str, list[float]]:
    """The gaps that `svea analyze q-gap` wrote, by augmentation."""
    found: dict[str, list[float]] = {}
    for run in runs:
        for row in run.analyses.get("q-gap", []):
            if isinstance(row.get("gap"), int | float):
                found.setdefault(str(row.get("augment")), []).append(float(row["gap"]))
    return found


def mean_of_all(values: Sequence[float]) -> float:
    """The mean, nan as soon as one is missing: a mean of some tasks is not the mean of all."""
    return float(np.mean(values)) if len(values) else math.nan
