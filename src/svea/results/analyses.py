"""What `svea analyze` finds in trained agents, as tables: Q-targets, Q-values, TID, wall time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from svea.config.modes import in_order
from svea.core import files
from svea.core.errors import SveaError, UserError
from svea.core.words import mean_std, number, significant
from svea.results.groups import Group, group_runs
from svea.results.read import find_runs, read_run, read_runs
from svea.results.stats import mean_and_std
from svea.results.summary import WallTime, common_level, wall_times
from svea.results.tables import Cell, Table

if TYPE_CHECKING:
    from svea.core.terminal import Steps
    from svea.evaluation.analysis import Sample

Rows = list[dict[str, Any]]
Analysis = Callable[[Path, Callable[[str], None]], tuple[int, dict[str, Any]]]
"""Of one run: its decision and its row. It says what it is about to do."""


@dataclass(frozen=True)
class Analysed:
    """A table, notes on it, and what could not be analysed."""

    table: Table
    notes: list[str]
    problems: list[SveaError] = field(default_factory=list)


def q_variances(runs: Sequence[Path], **options: Any) -> Analysed:
    """The variance of the Q-target: a row per run, and the mean over seeds below."""
    from svea.evaluation.analysis import q_variance

    def row(sample: Sample) -> dict[str, Any]:
        found = {one["view"]: one for one in q_variance(sample)}
        strong = found.get("strong")
        return {
            "target sees": found["target"]["sees"],
            "variance": found["target"]["variance"],
            "of strong view": strong["variance"] if strong else math.nan,
        }

    table, problems = _table("q-variance", runs, *_of_sample(row, **options))
    note = "variance of the Q-target over draws of its view, mean over transitions"
    return Analysed(table, [note], problems)


def q_gaps(runs: Sequence[Path], augmentations: Sequence[str], **options: Any) -> Analysed:
    """The Q-value gap: a row per run with a column per augmentation; means over seeds."""
    from svea.evaluation.analysis import q_gap

    notes = {"mean |Q(s, a) - Q(aug(s), a)|": None}

    def row(sample: Sample) -> dict[str, Any]:
        gaps = q_gap(sample, augmentations)
        notes.update({one["why"]: None for one in gaps if one["gap"] is None})
        return {one["augment"]: math.nan if one["gap"] is None else one["gap"] for one in gaps}

    table, problems = _table("q-gap", runs, *_of_sample(row, gap=True, **options))
    return Analysed(table, list(notes), problems)


def tid_scores(
    runs: Sequence[Path], modes: Sequence[str], steps: Steps | None = None, **options: Any
) -> Analysed:
    """SimGRL's TID scores: a row per run with two columns per mode; means over seeds."""
    from svea.evaluation.analysis import tid

    unfit: list[SveaError] = []

    def analyse(run: Path, say: Callable[[str], None]) -> tuple[int, dict[str, Any]]:
        say(f"playing {run} in {', '.join(modes)}")
        rows = tid(run, modes, on_problem=lambda mode, error: unfit.append(error), **options)
        if not rows:
            raise UserError(f"{run}: none of the modes {', '.join(modes)} could be played")
        return rows[0]["decision"], {"of": rows[0]["of"]} | {
            f"{row['mode']} {value}": row[value] for row in rows for value in ("score", "variance")
        }

    table, problems = _table("tid", runs, analyse, steps)
    notes = ["score: overlap of what raises Q most with the task's own pixels, 0 to 1"]
    if any(cell.text == "action" for row in table.rows for cell in row.cells):
        notes += ["of action: stored without Q-functions, so of what changes the action's length"]
    notes += ["variance: over the frames of a stack, of 100 times each frame's overlap"]
    return Analysed(table, notes, problems + unfit)


def _of_sample(
    row: Callable[[Sample], dict[str, Any]],
    *,
    transitions: int,
    draws: int,
    seed: int,
    device: str,
    gap: bool = False,
    steps: Steps | None = None,
) -> tuple[Analysis, Steps | None]:
    """An analysis of transitions from a run's replay, or as `Sample` has it for a gap."""
    from svea.evaluation.analysis import Sample

    def analyse(run: Path, say: Callable[[str], None]) -> tuple[int, dict[str, Any]]:
        say(f"reading {run}")
        sample = Sample.of(run, transitions, draws, seed, device, gap)
        say(f"analysing {transitions} transitions of {run}")
        return sample.agent.decision, row(sample)

    return analyse, steps


def _table(
    name: str, runs: Sequence[Path], analyse: Analysis, steps: Steps | None
) -> tuple[Table, list[SveaError]]:
    """A row per run, means over seeds, and what could not be analysed.

    Args:
        name: of the table.
        runs: folders, or folders of them.
        analyse: gives a run's decision and its row, and says what it is about to do.
        steps: shows how far it is.
    """
    if not runs:
        raise UserError("no run to analyse; name at least one folder made by `svea train`")
    analysed: dict[Path, dict[str, Any]] = {}
    problems: list[SveaError] = []
    found = find_runs(runs)

    def say(doing: str) -> None:
        if steps:
            steps.begin(doing, len(found))

    for run in found:
        try:
            decision, row = analyse(run, say)
            analysed[run] = {"run": str(run), "decision": f"{decision:,}"} | row
        except SveaError as error:
            problems.append(error)
        if steps:
            steps.finish(str(run))
    read = [read_run(run) for run in analysed]
    groups = {
        f"{group.task} {group.label}": [analysed[run.folder] for run in group.runs]
        for group in group_runs(read)
    }
    rows = [one for members in groups.values() for one in members]
    rows += [_mean_row(setting, members) for setting, members in groups.items() if members[1:]]
    cells = [{title: _cell(value) for title, value in one.items()} for one in rows]
    return Table.of(name, cells), problems


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
    is_number = isinstance(value, float)
    return Cell(significant(value), value=value) if is_number else Cell(str(value))


def walltimes(
    runs: Sequence[Path], mode: str = "train", level: float | None = None, out: Path | None = None
) -> Analysed:
    """What each setting takes, and when it reaches a common return; a figure of it into `out`."""
    found, notes = read_runs(runs)
    by_task: dict[str, list[WallTime]] = {}
    for one in wall_times(group_runs(found), mode):
        by_task.setdefault(one.group.task, []).append(one)
    if not by_task:
        modes = in_order(each for run in found for each in run.modes)
        raise UserError(
            f"no run was evaluated in {mode!r} during training, at least twice; these runs have "
            f"{', '.join(modes) or 'no evaluation'}"
        )
    rows = []
    for task, times in by_task.items():
        reached = common_level(times) if level is None else level
        hours_to = [one.hours_to(reached) for one in times]
        fastest = min((hours for hours in hours_to if hours > 0), default=math.nan)
        for one, hours in zip(times, hours_to, strict=True):
            to_level = f"hours to {number(reached)}" if len(by_task) == 1 else "hours to level"
            rows.append(
                {
                    "task": Cell(task),
                    "setting": Cell(one.group.label),
                    "seeds": Cell(str(len(one.group.runs))),
                    "ms per decision": _cell(one.milliseconds),
                    "hours": _cell(float(one.curve.decisions[-1])),
                    "last return": Cell(number(float(one.curve.returns[-1]))),
                    to_level: _cell(hours),
                    "× fastest": _cell(hours / fastest),
                }
            )
        if out is not None:
            members = [one.group for one in times]
            _draw(_per_task(out, task, len(by_task)), task, members, mode)
    notes.append("hours are wall time, evaluations included, on whatever machine each run had")
    return Analysed(Table.of("wall-time", rows), notes)


def _draw(out: Path, task: str, groups: Sequence[Group], mode: str) -> None:
    """The paper's K, M figure: return against wall time, one line per setting, as PNG or PDF."""
    from svea.results import figures, plots

    writers = {".png": plots.to_png, ".pdf": plots.to_pdf}
    if out.suffix.lower() not in writers:
        raise UserError(f"out is {str(out)!r}; allowed: a file that ends in .png or .pdf")
    if figure := figures.wall_time(task, groups, mode, figures.looks_of(groups)):
        files.write_whole(out, writers[out.suffix.lower()](figure))


def _per_task(out: Path, task: str, tasks: int) -> Path:
    """A file of its own for each task, where there are several."""
    return out if tasks == 1 else out.with_stem(f"{out.stem}-{task}")
