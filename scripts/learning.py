"""How fast settings learn: training returns up to 100,000 decisions, and agents kept on the way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from comparison import COMPARED_AT, MEANS, TASKS, from_to, mean_cell

from svea.evidence import plots
from svea.evidence.results import Group
from svea.evidence.run import Curve, Run
from svea.evidence.tables import Cell, Column, Row, Table

SETTINGS = ("drq", "drq + conv", "svea + conv", "svea + overlay")
"""What the paper compares: no strong augmentation, naive, and SVEA's."""
BIN = 10_000  # decisions
SEVERAL = 3  # agents of a run: its last one, and that of the comparison, are in other tables


def training_curves(groups: Iterable[Group]) -> Iterator[plots.Series]:
    """A line for each of `SETTINGS`: training episodes, averaged over bins, seeds, then tasks."""
    runs: dict[tuple[str, str], list[Run]] = {}
    for group in groups:  # a setting has one for each length
        runs.setdefault((group.label, group.task), []).extend(group.runs)
    middles = np.arange(BIN / 2, COMPARED_AT, BIN)
    for color, label in enumerate(SETTINGS):
        means = [np.mean([_binned(run) for run in runs[label, task]], axis=0) for task in TASKS]
        yield plots.Series(label, Curve(middles, np.mean(means, axis=0)), color=color)


def _binned(run: Run) -> list[float]:
    """The mean return of the training episodes that ended in each bin."""
    episodes = [line for line in run.metrics if line["kind"] == "episode"]
    decisions = np.array([line["decision"] for line in episodes])
    returns = np.array([line["return"] for line in episodes])
    bins = np.ceil(decisions / BIN).astype(int) - 1
    return [float(returns[bins == number].mean()) for number in range(COMPARED_AT // BIN)]


def agents_on_the_way(groups: Iterable[Group]) -> Table:
    """Test modes over training, of runs whose agents were kept and played again and again."""
    rows, played = [], set[int]()
    for group in groups:
        for run in group.runs:
            at: dict[int, dict[str, list[float]]] = {}
            for record in run.agent_episodes():
                modes = at.setdefault(record["decision"], {})
                modes.setdefault(record["mode"], []).append(record["return"])
            for decision in sorted(at) if len(at) >= SEVERAL else ():
                cells = [mean_cell([[at[decision].get(mode, [])]]) for mode in MEANS]
                played |= {len(at[decision][mode]) for mode in MEANS if mode in at[decision]}
                about = (group.task, f"`{group.label}`", str(run.seed), f"{decision:,}")
                rows.append(Row((*map(Cell, about), *cells)))
    note = (
        "Mean return of one agent with its 95 % interval over episodes, "
        f"{from_to(played)} per cell."
    )
    titles = ("task", "setting", "seed", "decisions", *MEANS)
    return Table("kept", "", tuple(map(Column, titles)), tuple(rows), (note,))
