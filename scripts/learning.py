"""How fast settings learn: training returns up to 100,000 decisions, and agents kept on the way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from comparison import COMPARED_AT, MEANS, TASKS, from_to, mean_cell

from svea.core.words import number
from svea.results import Group, plots
from svea.results.run import Curve, Run, by_world
from svea.results.tables import Cell, Column, Row, Table
from svea.runs.records import Record

SETTINGS = ("drq", "drq + conv", "svea + conv", "svea + overlay")
"""What the paper compares: no strong augmentation, naive, and SVEA's."""
BIN = 10_000  # decisions
NOT_LEARNED = ("drq", "ball_in_cup_catch")
"""The setting whose one seed did not learn a task: that task pulls its mean down."""
SEVERAL = 3  # agents of a run: its last one, and that of the comparison, are in other tables


def training_curves(
    groups: Iterable[Group], tasks: Sequence[str] = TASKS
) -> Iterator[plots.Series]:
    """A line for each of `SETTINGS`: training episodes, averaged over bins, seeds, then tasks."""
    runs = _runs_of(groups, SETTINGS)
    middles = np.arange(BIN / 2, COMPARED_AT, BIN)
    for color, label in enumerate(SETTINGS):
        means = [np.mean([_binned(run) for run in runs[label, task]], axis=0) for task in tasks]
        yield plots.Series(label, Curve(middles, np.mean(means, axis=0)), color=color)


def caption(groups: Iterable[Group]) -> str:
    """What stands below the curves: seeds, and where they end without a task that misleads."""
    groups, (method, task) = list(groups), NOT_LEARNED
    others = [one for one in TASKS if one != task]
    *ends, last = (number(line.curve.returns[-1]) for line in training_curves(groups, others))
    seeds = from_to({len(runs) for runs in _runs_of(groups, SETTINGS).values()})
    return (
        f"{seeds} seeds per task. On {task} the only run of `{method}` did not learn; without that "
        f"task the lines end at {', '.join(ends)} and {last}, in the order of the legend."
    )


def _runs_of(groups: Iterable[Group], labels: Sequence[str]) -> dict[tuple[str, str], list[Run]]:
    """Runs of some settings by setting and task, of any length."""
    runs: dict[tuple[str, str], list[Run]] = {}
    for group in (group for group in groups if group.label in labels):
        runs.setdefault((group.label, group.task), []).extend(group.runs)
    return runs


def _binned(run: Run) -> list[float]:
    """The mean return of the training episodes that ended in each bin."""
    episodes = [line for line in run.metrics if line["kind"] == "episode"]
    decisions = np.array([line["decision"] for line in episodes])
    returns = np.array([line["return"] for line in episodes])
    bins = np.ceil(decisions / BIN).astype(int) - 1
    return [float(returns[bins == k].mean()) for k in range(COMPARED_AT // BIN)]


def agents_on_the_way(groups: Iterable[Group]) -> Table:
    """Test modes over training, of runs whose agents were kept and played again and again."""
    rows, played = [], set[int]()
    for group in groups:
        for run in group.runs:
            at: dict[int, dict[str, list[Record]]] = {}
            for record in run.agent_episodes():
                modes = at.setdefault(record["decision"], {})
                modes.setdefault(record["mode"], []).append(record)
            for decision in sorted(at) if len(at) >= SEVERAL else ():
                cells = [mean_cell([[by_world(at[decision].get(mode, []))]]) for mode in MEANS]
                played |= {len(at[decision][mode]) for mode in MEANS if mode in at[decision]}
                about = (group.task, f"`{group.label}`", str(run.seed), f"{decision:,}")
                rows.append(Row((*map(Cell, about), *cells)))
    note = (
        "Mean return of one agent with its 95 % interval over worlds (train: episodes), "
        f"{from_to(played)} episodes per cell."
    )
    titles = ("task", "setting", "seed", "decisions", *MEANS)
    return Table("kept", "", tuple(map(Column, titles)), tuple(rows), (note,))
