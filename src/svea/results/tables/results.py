"""Tables of results: all of them in a list, or settings side by side next to the paper's."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Literal

from svea.config.modes import family, in_order
from svea.core.words import interval, listed, mean_std, number, rate
from svea.envs import describe
from svea.results import (
    Aggregate,
    Group,
    Result,
    aggregate,
    summarise,
)
from svea.results.published import PaperResult
from svea.results.stats import Interval
from svea.results.tables import Cell, Column, Record, Row, Table

ABOUT = "≈"
"""Marks a value of the paper that is read off a plot."""
NOT_A_REPLICATION = "†"
"""Marks a value of the paper that ours cannot be compared with."""

SPREAD = "Mean over seeds, ± standard deviation over seeds where there are several."


# One result as text -------------------------------------------------------------------------------


def show(unit: str) -> Callable[[float], str]:
    """How numbers of a unit are written."""
    return rate if unit == "success" else number


def ours(result: Result) -> str:
    """'760 ± 145', or '0.89 ± 0.03'."""
    return mean_std(result.mean, result.std, show(result.unit))


def papers(paper: PaperResult | None, is_replication: bool = True) -> str:
    """The paper's value with its marks; empty where it has none."""
    if paper is None:
        return ""
    about = ABOUT if paper.approximate else ""
    mark = "" if is_replication else NOT_A_REPLICATION
    return about + mean_std(paper.mean, paper.std, show(paper.unit)) + mark


def cell(result: Result) -> Cell:
    """A result next to the paper's."""
    paper = papers(result.paper, result.is_replication)
    return Cell(ours(result), paper=paper, value=result.mean)


def record(result: Result) -> Record:
    """Every number of a result, unrounded."""
    run, paper = result.group.runs[0], result.paper
    return {
        "task": run.task,
        "setting": result.group.label,
        "method": run.method,
        "augment": run.augment,
        "encoder": run.encoder,
        "base": run.base,
        "mask": run.mask,
        "preset": run.preset,
        "decisions": min(run.decisions_done for run in result.group.runs),
        "mode": result.mode,
        "unit": result.unit,
        "seeds": result.seeds,
        "episodes": result.episodes,
        "worlds_seen": result.worlds_seen,
        "worlds": result.worlds,
        "mean": result.mean,
        "std_over_seeds": result.std,
        "mean_low": result.mean_interval.low,
        "mean_high": result.mean_interval.high,
        "mean_low_over_worlds": result.mean_over_worlds.low,
        "mean_high_over_worlds": result.mean_over_worlds.high,
        "iqm": result.iqm.point,
        "iqm_low": result.iqm.low,
        "iqm_high": result.iqm.high,
        "iqm_low_over_worlds": result.iqm_over_worlds.low,
        "iqm_high_over_worlds": result.iqm_over_worlds.high,
        "area_under_curve": result.area.point,
        "area_low": result.area.low,
        "area_high": result.area.high,
        "random_policy": result.random,
        "percent_of_train": result.percent_of_train,
        "paper_mean": paper.mean if paper else math.nan,
        "paper_std": paper.std if paper else math.nan,
        "paper_table": paper.table if paper else "",
        "paper_is_approximate": bool(paper and paper.approximate),
        "is_replication": result.is_replication,
        "differs_from_paper": ", ".join(result.departures) if paper else "",
    }


def notes_on_marks(results: Iterable[Result], *, brief: bool = False) -> list[str]:
    """What the marks on the paper's values mean, as far as there are any.

    Args:
        results: Those shown.
        brief: Do not say how each setting differs from the paper's.
    """
    marked = [result for result in results if result.paper is not None]
    notes = []
    if any(result.paper and result.paper.approximate for result in marked):
        notes.append(f"{ABOUT} Read off a plot, to about 10 points.")
    apart: dict[str, list[str]] = {}  # what differs from the paper, and whose result does
    for result in marked:
        if not result.is_replication:
            own = ", ".join(result.departures)
            apart.setdefault(own, []).append(f"{result.group.task} {result.group.label}")
    if apart and brief:
        notes.append(
            f"{NOT_A_REPLICATION} Not a replication: our run is smaller than the paper's, its "
            "setting or pictures are others, or it was not judged in all of the benchmark's worlds."
        )
    elif apart:
        who = [f"{listed(list(dict.fromkeys(names)), 3)}: {own}" for own, names in apart.items()]
        here = listed(who, between="; ") if len(apart) > 1 else next(iter(apart))
        notes.append(
            f"{NOT_A_REPLICATION} Not a replication. The paper trains for 500,000 decisions (ViT: "
            f"300,000) and 5 seeds at 84 px; here: {here}."
        )
    return notes


# All results in a list ----------------------------------------------------------------------------


def all_results(groups: Sequence[Group], modes: Collection[str] | None = None) -> Table:
    """A row per setting and mode, then one per setting and mode over the tasks of a suite.

    Args:
        groups: Whose results.
        modes: Only these; all if None.
    """
    returns = [result for group in groups for result in summarise(group)]
    successes = [result for group in groups for result in summarise(group, "success")]
    return list_results(returns, successes, aggregate(groups), modes)


def list_results(
    returns: Sequence[Result],
    successes: Sequence[Result],
    aggregates: Sequence[Aggregate] = (),
    modes: Collection[str] | None = None,
) -> Table:
    """The same from results that are there already."""
    returns = [one for one in returns if modes is None or one.mode in modes]
    succeeded = {(one.group, one.mode): one for one in successes}
    lines = [(_listed(one, succeeded.get((one.group, one.mode))), one) for one in returns]
    rows = [(line, one.group.task, one.group.method) for line, one in lines]
    pooled = [one for one in aggregates if modes is None or one.mode in modes]
    rows += [(_pooled(one), "", "") for one in pooled]
    names = [name for name in COLUMNS if any(name in line for line, _, _ in rows)]
    shown = [success for success in succeeded.values() if modes is None or success.mode in modes]
    return Table(
        name="results",
        title="All results",
        columns=tuple(Column(name, kind=COLUMNS[name]) for name in names),
        rows=tuple(
            Row(tuple(line.get(name, Cell("")) for name in names), task, method)
            for line, task, method in rows
        ),
        notes=tuple(_list_notes(names, returns, shown, bool(pooled))),
        records=tuple(record(result) for result in returns),
    )


COLUMNS: dict[str, Literal["number", "main", "text", "paper"]] = {
    "task": "text",
    "setting": "text",
    "mode": "text",
    "mean ± std": "main",  # first of the numbers: a phone shows the beginning of a row
    "mean [95 %]": "number",
    "IQM [95 %]": "number",
    "area": "number",
    "random": "number",
    "of train": "number",
    "success [95 %]": "number",
    "seeds": "number",
    "episodes": "number",
    "worlds": "number",
    "paper": "paper",
}


def _listed(result: Result, success: Result | None) -> dict[str, Cell]:
    """The cells of a setting in a mode; a column without any is left out."""
    iqm, mode = result.iqm, described_mode(result)
    cells = {
        "task": Cell(result.group.task),
        "setting": Cell(result.group.label),
        "mode": Cell(result.mode, mode.removeprefix(result.mode).strip()),
        "seeds": Cell(str(result.seeds), value=result.seeds),
        "episodes": Cell(str(result.episodes), value=result.episodes),
        "mean ± std": Cell(ours(result), value=result.mean),
        "mean [95 %]": _over_worlds(result.mean_over_worlds),
        "IQM [95 %]": Cell(number(iqm.point), interval(iqm.low, iqm.high), value=iqm.point),
    }
    if result.worlds:
        seen = str(result.worlds_seen or "?")
        cells["worlds"] = Cell(f"{seen} of {result.worlds}", value=result.worlds_seen)
    if math.isfinite(result.area.point):
        cells["area"] = Cell(number(result.area.point), value=result.area.point)
    if math.isfinite(result.random):
        times = f"({result.times_random:.1f}×)" if math.isfinite(result.times_random) else ""
        cells["random"] = Cell(number(result.random), times, value=result.random)
    if math.isfinite(result.percent_of_train):
        kept = result.percent_of_train
        cells["of train"] = Cell(f"{kept:.0f} %", value=kept)
    if success is not None:
        ends = interval(success.mean_over_worlds.low, success.mean_over_worlds.high, rate)
        cells["success [95 %]"] = Cell(rate(success.mean), ends, value=success.mean)
    compared = result if result.paper or success is None else success
    if (paper := compared.paper) is not None:
        text = papers(paper, compared.is_replication)
        cells["paper"] = Cell(text, paper.table, value=paper.mean)
    return cells


def _pooled(one: Aggregate) -> dict[str, Cell]:
    """The cells of a setting in a mode, over tasks."""
    return {
        "task": Cell(f"all {len(one.tasks)} {one.suite} tasks"),
        "setting": Cell(one.label),
        "mode": Cell(one.mode),
        "seeds": Cell(str(one.seeds), value=one.seeds),
        "mean ± std": Cell(number(one.mean.point), value=one.mean.point),
        "mean [95 %]": _over_worlds(one.mean_over_worlds),
        "IQM [95 %]": _iqm(one),
    }


def _over_worlds(one: Interval) -> Cell:
    """The interval of a mean over seeds and worlds; a dash where there is none."""
    return Cell(interval(one.low, one.high) or "–", value=one.low)


def _iqm(one: Aggregate) -> Cell:
    """The interquartile mean over tasks, with its interval."""
    ends = interval(one.iqm.low, one.iqm.high)
    return Cell(number(one.iqm.point), ends, value=one.iqm.point)


def described_mode(result: Result) -> str:
    """The mode with what its pictures were made of, such as `video_easy (6 of 10 clips)`."""
    try:
        return describe(result.group.runs[0].provenance()[result.mode])
    except (KeyError, TypeError, ValueError):  # damaged
        return result.mode


def _list_notes(
    names: Collection[str], returns: Sequence[Result], successes: Sequence[Result], is_pooled: bool
) -> Iterable[str]:
    """What the columns mean, and how far we are from the paper's setting."""
    yield (
        "Mean over episodes per seed, then mean ± standard deviation over seeds, as in the paper. "
        "mean [95 %]: bootstrap interval of the mean over seeds and worlds (train: seeds and "
        "episodes). IQM: mean of the middle half, with its interval over seeds. With a single seed "
        "both are over its worlds or episodes, which says nothing about other seeds."
    )
    if any(math.isnan(result.mean_over_worlds.low) for result in returns):
        yield "No interval: one seed in a single world or episode says nothing about others."
    if is_pooled:
        yield (
            "All tasks: seeds and worlds are drawn within each task. Where a task has a single "
            "seed, the IQM's interval is over seeds and worlds, too."
        )
    if any(result.worlds_seen < result.worlds for result in [*returns, *successes]):
        yield "Worlds: how many of a mode's were shown; `svea eval --episodes all` shows each once."
    if "area" in names:
        yield "Area: mean height of the evaluation curve during training (sample efficiency)."
    yield from notes_on_marks([*returns, *successes])


# Settings side by side ----------------------------------------------------------------------------


def return_tables(results: Sequence[Result]) -> list[Table]:
    """Returns, settings side by side: over modes for one task, else over tasks for each mode."""
    tasks = list(dict.fromkeys(result.group.task for result in results))
    if len(tasks) == 1:
        title = f"{tasks[0]}: return per mode"
        return [side_by_side("returns", title, "Mode", results, lambda r: r.mode)]
    families: dict[str, list[Result]] = {}  # many modes of a kind share a table
    for mode in in_order(result.mode for result in results):
        members = [result for result in results if result.mode == mode]
        families.setdefault(family(mode), []).extend(members)
    return [_over_tasks(name, members) for name, members in families.items()]


def _over_tasks(name: str, results: Sequence[Result]) -> Table:
    """The table of a mode, over tasks; with a row for each where there are several of its kind."""

    def task_and_mode(result: Result) -> str:
        own = result.mode.partition(":")[2] if is_intensity else result.mode
        return f"{result.group.task}, {own or result.mode}"

    is_intensity = all(result.mode.partition(":")[0] == name for result in results)
    corner = "Task, intensity" if is_intensity else "Task, mode"
    title = f"Return in {name}"
    if len({result.mode for result in results}) > 1:
        tasks = list(dict.fromkeys(result.group.task for result in results))
        results = sorted(results, key=lambda result: tasks.index(result.group.task))
        return side_by_side(f"returns-{name}", title, corner, results, task_and_mode)
    return side_by_side(f"returns-{name}", title, "Task", results, lambda r: r.group.task)


def success_table(successes: Sequence[Result]) -> Table | None:
    """Success rates of every task and mode; None where no task knows success."""
    if not successes:
        return None

    def task_and_mode(success: Result) -> str:
        return f"{success.group.task}, {success.mode}"

    return side_by_side("success", "Success rate", "Task, mode", successes, task_and_mode)


def side_by_side(
    name: str,
    title: str,
    corner: str,
    results: Sequence[Result],
    row_of: Callable[[Result], str],
) -> Table:
    """A row for each of what `row_of` says, a column for each setting."""
    order = sorted({result.group.label: result.group.method for result in results}.items())
    methods = dict(order)  # the same order in every table
    placed: dict[str, dict[str, Result]] = {}
    for result in results:
        placed.setdefault(row_of(result), {})[result.group.label] = result
    rows = []
    for head, by_label in placed.items():
        cells = (cell(by_label[label]) if label in by_label else Cell("–") for label in methods)
        task = next(iter(by_label.values())).group.task
        rows.append(Row((Cell(head), *cells), task))
    return Table(
        name,
        title,
        (Column(corner, kind="text"), *(Column(*column) for column in methods.items())),
        tuple(rows),
        (SPREAD, *notes_on_marks(results, brief=True)),
        tuple(map(record, results)),
    )


def aggregate_table(aggregates: Sequence[Aggregate], methods: dict[str, str]) -> Table | None:
    """Interquartile means over tasks and seeds; None where no setting has several tasks.

    Args:
        aggregates: Of each setting and mode.
        methods: The method of each setting, by its label.
    """
    if not aggregates:
        return None
    labels = sorted({one.label for one in aggregates})
    placed: dict[str, dict[str, Cell]] = {}
    for one in aggregates:
        head = f"{one.mode}, {len(one.tasks)} {one.suite} tasks"
        placed.setdefault(head, {})[one.label] = _iqm(one)
    return Table(
        name="returns-over-tasks",
        title="Over tasks: IQM of returns",
        columns=(
            Column("Mode", kind="text"),
            *(Column(label, methods[label]) for label in labels),
        ),
        rows=tuple(
            Row((Cell(head), *(cells.get(label, Cell("–")) for label in labels)))
            for head, cells in placed.items()
        ),
        notes=(
            "IQM: the mean of the middle half of all tasks' seeds, with its 95 % interval; seeds "
            "are resampled within each task (seeds and worlds, where a task has one seed).",
        ),
    )
