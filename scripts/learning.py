"""How fast settings learn: training returns up to 100,000 decisions, means over the five tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from comparison import COMPARED_AT, TASKS

from svea.evidence import plots
from svea.evidence.results import Group
from svea.evidence.run import Curve, Run

SETTINGS = ("drq", "drq + conv", "svea + conv", "svea + overlay")
"""What the paper compares: no strong augmentation, naive, and SVEA's."""
BIN = 10_000  # decisions


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
