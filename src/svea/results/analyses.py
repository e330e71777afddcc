"""What `svea analyze` finds in trained agents, as tables: Q-targets, Q-values, TID, wall time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from svea.config.modes import in_order
from svea.core import files
from svea.core.errors import SveaError, UserError
from svea.core.words import mean_std, number, significant
from svea.results.groups import Group, group_runs
from svea.results.read import Curve, find_runs, read_run, read_runs
from svea.results.stats import mean_and_std
from svea.results.summary import hours_to, over_hours, seconds_per_decision
from svea.results.tables import Cell, Table

if TYPE_CHECKING:
    from svea.core.terminal import Steps
    from svea.evaluation.analysis import Sample

Rows = list[dict[str, Any]]
Analysis = Callable[[Path], tuple[int, dict[str, Any]]]
"""Of one run: its decision and its row."""
Analysed = tuple[Table, list[SveaError]]
"""A table with its notes, and what could not be analysed."""


def q_variances(runs: Sequence[Path], **options: Any) -> Analysed:
    """The variance of the Q-target: a row per run, and the mean over seeds below."""
    from svea.evaluation.analysis import q_variance

    def row(sample: Sample) -> dict[str, Any]:
        found = {one["view"]: one for one in q_variance(sample)}
        return {
            "target sees": found["target"]["sees"],
            "variance": found["target"]["variance"],
            "of strong view": found.get("strong", {}).get("variance", math.nan),
        }

    note = "variance of the Q-target over draws of its view, mean over transitions"
    return _of_samples("q-variance", runs, row, [note], **options)


def q_gaps(runs: Sequence[Path], augmentations: Sequence[str], **options: Any) -> Analysed:
    """The Q-value gap: a row per run with a column per augmentation; means over seeds."""
    from svea.evaluation.analysis import q_gap

    notes = ["mean |Q(s, a) - Q(aug(s), a)|"]

    def row(sample: Sample) -> dict[str, Any]:
        gaps = q_gap(sample, augmentations)
        notes.extend(one["why"] for one in gaps if one["gap"] is None)
        return {one["augment"]: math.nan if one["gap"] is None else one["gap"] for one in gaps}

    return _of_samples("q-gap", runs, row, notes, gap=True, **options)


def tid_scores(
    runs: Sequence[Path], modes: Sequence[str], steps: Steps | None = None, **options: Any
) -> Analysed:
    """SimGRL's TID scores: a row per run with two columns per mode; means over seeds."""
    from svea.evaluation.analysis import tid

    unfit: list[SveaError] = []
    notes = ["score: overlap of what raises Q most with the task's own pixels, 0 to 1"]
    of_action = "of action: stored without Q-functions, so of what changes the action's length"

    def analyse(run: Path) -> tuple[int, dict[str, Any]]:
        rows = tid(run, modes, on_problem=lambda mode, error: unfit.append(error), **options)
        if rows[0]["of"] == "action":
            notes.append(of_action)
        return rows[0]["decision"], {"of": rows[0]["of"]} | {
            f"{row['mode']} {value}": row[value] for row in rows for value in ("score", "variance")
        }

    table, problems = _table("tid", runs, analyse, notes, steps)
    over = "variance: over the frames of a stack, of 100 times each frame's overlap"
    return replace(table, notes=(*table.notes, over)), problems + unfit


def _of_samples(
    name: str,
    runs: Sequence[Path],
    row: Callable[[Sample], dict[str, Any]],
    notes: Sequence[str],
    steps: Steps | None = None,
    **options: Any,
) -> Analysed:
    """The table of an analysis of transitions from each run's replay, as `Sample` has them."""
    from svea.evaluation.analysis import Sample

    def analyse(run: Path) -> tuple[int, dict[str, Any]]:
        sample = Sample.of(run, **options)
        return sample.agent.decision, row(sample)

    return _table(name, runs, analyse, notes, steps)


def _table(
    name: str,
    runs: Sequence[Path],
    analyse: Analysis,
    notes: Sequence[str],
    steps: Steps | None,
) -> Analysed:
    """A row per run and means over seeds; `analyse` may add to the notes, `steps` shows how far."""
    if not runs:
        raise UserError("no run to analyse; name at least one folder made by `svea train`")
    analysed: dict[Path, dict[str, Any]] = {}
    problems: list[SveaError] = []
    found = find_runs(runs)
    for run in found:
        if steps:
            steps.begin(f"analysing {run}", len(found))
        try:
            decision, row = analyse(run)
            analysed[run] = {"run": str(run), "decision": f"{decision:,}"} | row
        except SveaError as error:
            problems.append(error)
        if steps:
            steps.finish(str(run))
    groups = {
        f"{group.task} {group.label}": [analysed[run.folder] for run in group.runs]
        for group in group_runs([read_run(run) for run in analysed])
    }
    rows = [one for members in groups.values() for one in members]
    rows += [_mean_row(setting, members) for setting, members in groups.items() if members[1:]]
    cells = [{title: _cell(value) for title, value in one.items()} for one in rows]
    return Table.of(name, cells, list(dict.fromkeys(notes))), problems


def _mean_row(setting: str, members: Rows) -> dict[str, Any]:
    """The mean ± standard deviation over the runs of a setting."""
    mean: dict[str, Any] = {"run": setting, "decision": f"{len(members)} seeds"}
    for name, first in members[0].items():
        if isinstance(first, float):
            values = [one[name] for one in members]
            mean[name] = mean_std(*mean_and_std(values), significant)
        else:
            mean.setdefault(name, first)
    return mean


def _cell(value: Any) -> Cell:
    """Three digits of a number, a dash for none, text as it is."""
    return Cell(significant(value), value=value) if isinstance(value, float) else Cell(str(value))


def walltimes(
    runs: Sequence[Path], mode: str = "train", level: float | None = None, out: Path | None = None
) -> Analysed:
    """What each setting takes, and when it reaches a common return; a figure of it into `out`.

    The common return is `level`, or nine tenths of the lowest of their best ones.
    """
    found, unread = read_runs(runs)
    by_task: dict[str, dict[Group, Curve]] = {}
    for group in group_runs(found):
        if band := over_hours(group.runs, mode):
            by_task.setdefault(group.task, {})[group] = band.curve
    if not by_task:
        modes = in_order(each for run in found for each in run.modes)
        raise UserError(
            f"no run was evaluated in {mode!r} during training, at least twice; these runs have "
            f"{', '.join(modes) or 'no evaluation'}"
        )
    rows: list[dict[str, Cell | str]] = []
    for task, curves in by_task.items():
        lowest = min(float(curve.returns.max()) for curve in curves.values())
        reached = 0.9 * lowest if level is None else level
        hours = {group: hours_to(curve, reached) for group, curve in curves.items()}
        fastest = min((one for one in hours.values() if one > 0), default=math.nan)
        to_level = f"hours to {number(reached)}" if len(by_task) == 1 else "hours to level"
        for group, curve in curves.items():
            rows.append(
                {
                    "task": task,
                    "setting": group.label,
                    "seeds": str(len(group.runs)),
                    "ms per decision": _cell(1000 * seconds_per_decision(group.runs)),
                    "hours": _cell(float(curve.decisions[-1])),
                    "last return": number(float(curve.returns[-1])),
                    to_level: _cell(hours[group]),
                    "× fastest": _cell(hours[group] / fastest),
                }
            )
        if out is not None:
            own = out if len(by_task) == 1 else out.with_stem(f"{out.stem}-{task}")
            _draw(own, task, list(curves), mode)
    note = "hours are wall time, evaluations included, on whatever machine each run had"
    return Table.of("wall-time", rows, [*unread, note]), []


def _draw(out: Path, task: str, groups: Sequence[Group], mode: str) -> None:
    """The paper's K, M figure: return against wall time, one line per setting, as PNG or PDF."""
    from svea.results import figures, plots

    writers = {".png": plots.to_png, ".pdf": plots.to_pdf}
    if out.suffix.lower() not in writers:
        raise UserError(f"out is {str(out)!r}; allowed: a file that ends in .png or .pdf")
    if figure := figures.wall_time(task, groups, mode, figures.looks_of(groups)):
        files.write_whole(out, writers[out.suffix.lower()](figure))
