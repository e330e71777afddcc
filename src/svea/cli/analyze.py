"""What `svea analyze` and `svea compare` print and draw."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from svea.console import print_problems, print_table
from svea.errors import StorageError, SveaError, UserError
from svea.evidence import compare, plots, stats
from svea.evidence.analysis import Sample, WallTime, common_level, q_gap, q_variance, wall_times
from svea.evidence.read import find_runs, read_run, read_runs
from svea.evidence.results import caveats, group_runs
from svea.words import number

BOOTSTRAP_SEED = 0
LONGEST_NAME = 16  # in the head of a column

Rows = list[dict[str, Any]]


Findings = tuple[Rows, list[str], list[SveaError]]
"""A table, notes on it, and what could not be analysed."""


def q_variance_table(runs: Sequence[Path], **options: Any) -> Findings:
    """`svea analyze q-variance`: a row per run, and the mean over seeds below."""

    def row(sample: Sample) -> dict[str, Any]:
        found = {one["view"]: one for one in q_variance(sample)}
        strong = found.get("strong")
        return {
            "target sees": found["target"]["sees"],
            "variance": found["target"]["variance"],
            "of strong view": strong["variance"] if strong else math.nan,
        }

    rows, problems = _table(runs, row, **options)
    note = "variance of the Q-target over draws of its view, mean over transitions"
    return rows, [note], problems


def q_gap_table(runs: Sequence[Path], augmentations: Sequence[str], **options: Any) -> Findings:
    """`svea analyze q-gap`: a row per run with a column per augmentation; means over seeds."""
    notes = {"mean |Q(s, a) - Q(aug(s), a)|": None}

    def row(sample: Sample) -> dict[str, Any]:
        gaps = q_gap(sample, augmentations)
        notes.update({one["why"]: None for one in gaps if one["gap"] is None})
        return {one["augment"]: math.nan if one["gap"] is None else one["gap"] for one in gaps}

    rows, problems = _table(runs, row, **options)
    return rows, list(notes), problems


def _table(
    runs: Sequence[Path],
    row: Callable[[Sample], dict[str, Any]],
    *,
    transitions: int,
    draws: int,
    seed: int,
    device: str,
) -> tuple[Rows, list[SveaError]]:
    """A row per run, means over seeds, and what could not be analysed."""
    if not runs:
        raise UserError("no run to analyse; name at least one folder made by `svea train`")
    analysed: dict[Path, dict[str, Any]] = {}
    problems: list[SveaError] = []
    for run in find_runs(runs):
        try:
            sample = Sample.of(run, transitions, draws, seed, device)
            who = {"run": str(run), "decision": f"{sample.agent.decision:,}"}
            analysed[run] = who | row(sample)
        except SveaError as error:
            problems.append(error)
    groups = {
        f"{group.task} {group.label}": [analysed[run.folder] for run in group.runs]
        for group in group_runs([read_run(run) for run in analysed])
    }
    rows = [one for members in groups.values() for one in members]
    rows += [_mean_row(setting, members) for setting, members in groups.items() if members[1:]]
    return [{name: _shown(value) for name, value in one.items()} for one in rows], problems


def _mean_row(setting: str, members: Rows) -> dict[str, Any]:
    """The mean ± standard deviation over the runs of a setting."""
    mean: dict[str, Any] = {"run": setting, "decision": f"{len(members)} seeds"}
    for name, first in members[0].items():
        if isinstance(first, float):
            values = [one[name] for one in members]
            spread = f" ± {_shown(np.std(values, ddof=1))}" if np.isfinite(values).all() else ""
            mean[name] = _shown(np.mean(values)) + spread
        else:
            mean.setdefault(name, first)
    return mean


def _shown(value: Any) -> str:
    """Three digits of a number, a dash for none, text as it is."""
    if not isinstance(value, float):
        return str(value)
    return f"{value:.3g}" if math.isfinite(value) else "–"


def wall_time_table(
    runs: Sequence[Path], mode: str, level: float | None, out: Path | None
) -> tuple[Rows, list[str]]:
    """`svea analyze walltime`: what each setting takes, and when it reaches a common return."""
    found, notes = read_runs(runs)
    by_task: dict[str, list[WallTime]] = {}
    for one in wall_times(group_runs(found), mode):
        by_task.setdefault(one.group.task, []).append(one)
    if not by_task:
        raise UserError(f"no run was evaluated in {mode!r} during training, at least twice")
    rows = []
    for task, times in by_task.items():
        reached = common_level(times) if level is None else level
        hours_to = [one.hours_to(reached) for one in times]
        fastest = min((hours for hours in hours_to if hours > 0), default=math.nan)
        for one, hours in zip(times, hours_to, strict=True):
            rows.append(
                {
                    "task": task,
                    "setting": one.group.label,
                    "seeds": len(one.group.runs),
                    "ms per decision": _shown(one.milliseconds),
                    "hours": _shown(float(one.curve.decisions[-1])),
                    "last return": number(float(one.curve.returns[-1])),
                    f"hours to {number(reached)}" if len(by_task) == 1 else "hours to level": (
                        _shown(hours)
                    ),
                    "× fastest": _shown(hours / fastest),
                }
            )
        if out is not None:
            draw_wall_times(times, mode, _per_task(out, task, len(by_task)))
    notes.append("hours are wall time, evaluations included, on whatever machine each run had")
    return rows, notes


def draw_wall_times(times: Sequence[WallTime], mode: str, out: Path) -> Path:
    """The paper's K, M figure: return against wall time, one line per setting, as PNG or PDF."""
    series = [
        plots.Series(one.group.label, one.curve, color=place) for place, one in enumerate(times)
    ]
    title = f"{times[0].group.task}: {mode}"
    figure = plots.learning_curves(series, title=title, action_repeat=None)
    axes = figure.axes[0]
    axes.set_xlabel("hours of wall time")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    writers = {".png": plots.to_png, ".pdf": plots.to_pdf}
    if out.suffix.lower() not in writers:
        raise UserError(f"out is {str(out)!r}; allowed: a file that ends in .png or .pdf")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_bytes(writers[out.suffix.lower()](figure))
    except OSError as error:
        raise StorageError(f"cannot write {out}: {error.strerror}") from error
    return out


def _per_task(out: Path, task: str, tasks: int) -> Path:
    """A file of its own for each task, where there are several."""
    return out if tasks == 1 else out.with_stem(f"{out.stem}-{task}")


def comparisons(
    ours: str,
    theirs: str,
    beneath: Path,
    modes: Sequence[str],
    measure: compare.Measure,
) -> tuple[list[compare.Comparison], list[str]]:
    """`svea compare`: one comparison per mode (all that both have if none is named), and notes."""
    (a, unread_a), (b, unread_b) = (compare.find_side(one, beneath) for one in (ours, theirs))
    pairs, alone = compare.matches(a, b)
    groups = [group for pair in pairs for group in (pair.ours, pair.theirs)]
    told = (text for group in groups for text in caveats(group))
    a_name, _ = _side_names(ours, theirs)
    sides = [] if a_name == ours else [f"A: {ours}; B: {theirs}"]
    notes = list(dict.fromkeys([*sides, *unread_a, *unread_b, *alone, *told]))
    generator = np.random.default_rng(BOOTSTRAP_SEED)
    made = []
    for mode in modes or _common_modes(pairs):
        found = compare.compare(pairs, mode, measure, generator)
        if found is None:
            notes.append(f"{mode}: no {measure} on both sides of any task")
            continue
        made.append(found)
        notes.append(f"{mode}: {a_name} is better in {found.wins} of {len(found.names)}")
    if not made:
        raise UserError("nothing to compare:\n" + "\n".join(notes))
    return made, notes


def _side_names(ours: str, theirs: str) -> tuple[str, str]:
    """What the columns call the two sides."""
    return ("A", "B") if max(len(ours), len(theirs)) > LONGEST_NAME else (ours, theirs)


def _common_modes(pairs: Sequence[compare.Match]) -> list[str]:
    """Modes that any match has on both sides."""
    return list(
        dict.fromkeys(m for pair in pairs for m in pair.ours.modes if m in pair.theirs.modes)
    )


def comparison_rows(found: compare.Comparison, ours: str, theirs: str) -> Rows:
    """A row per match, and the last one over all; long names of the sides are shown as A and B."""
    ours, theirs = _side_names(ours, theirs)

    def row(
        name: str,
        a: float,
        b: float,
        seeds: str,
        gain: stats.Interval | None,
        chance: stats.Interval,
    ) -> dict[str, Any]:
        return {
            "task": name,
            "mode": found.mode,
            f"{found.measure} of {ours}": number(a),
            f"of {theirs}": number(b),
            "seeds": seeds,
            "difference [95 %]": _interval(gain, number) if gain else "–",
            f"P({ours} > {theirs}) [95 %]": _interval(chance, lambda value: f"{value:.2f}"),
        }

    each = zip(found.names, found.ours, found.theirs, found.differences, found.chances, strict=True)
    rows = [
        row(name, x.mean(), y.mean(), f"{x.size}, {y.size}", gain, chance)
        for name, x, y, gain, chance in each
    ]
    if len(rows) > 1:
        a, b = (float(np.mean([x.mean() for x in side])) for side in (found.ours, found.theirs))
        if found.difference is None:  # returns of several suites have no common scale
            a = b = math.nan
        n, m = (sum(x.size for x in side) for side in (found.ours, found.theirs))
        rows.append(row(f"all {len(rows)}", a, b, f"{n}, {m}", found.difference, found.chance))
    return rows


def _interval(one: stats.Interval, show: Callable[[float], str]) -> str:
    """A value with the ends of its interval."""
    return f"{show(one.point)} [{show(one.low)}, {show(one.high)}]"


def print_findings(rows: Rows, notes: Sequence[str], problems: Sequence[SveaError] = ()) -> int:
    """A table, notes below it, problems on stderr; the exit code of the first problem."""
    if rows:
        print_table(rows)
    for note in notes if rows else ():  # they are about the table
        print(note)
    return print_problems(problems)
