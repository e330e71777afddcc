"""Results: how a group does in a mode, as a return or a success rate, and over several tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from svea.evidence import published, stats
from svea.evidence.published import PaperResult
from svea.evidence.results.curves import areas
from svea.evidence.results.groups import Group, suite
from svea.evidence.run import Run

Unit = Literal["return", "success"]


@dataclass(frozen=True, eq=False)
class Result:
    """How a group does in one mode, with what it is to be judged against."""

    group: Group
    mode: str
    unit: Unit
    """What a score is: the mean return of a seed's episodes, or the share that succeeded."""
    seeds: int
    episodes: int
    mean: float
    std: float
    """Over seeds; nan for a single seed."""
    mean_interval: stats.Interval
    iqm: stats.Interval
    """95 % bootstrap intervals: over seeds, or over the episodes of a single seed."""
    area: stats.Interval
    """Sample efficiency: the area under the evaluation curve in this mode, as a mean return, up to
    the last decision that all seeds were evaluated at; its interval is over seeds."""
    random: float
    """The random policy's mean return in the same mode; nan where it was not evaluated."""
    train: float
    """The same group's mean in the training mode; nan where there is none."""
    paper: PaperResult | None

    @property
    def times_random(self) -> float:
        """The return as a multiple of the random policy's, where that is positive."""
        return self.mean / self.random if self.random > 0 else float("nan")

    @property
    def percent_of_train(self) -> float:
        """How much of the training return is kept in this mode."""
        return 100 * self.mean / self.train if self.train > 0 else float("nan")

    @property
    def is_replication(self) -> bool:
        """Whether seeds, decisions and settings are the paper's, so that the numbers compare."""
        is_whole = self.seeds >= published.SEEDS
        return self.paper is not None and is_whole and not self.group.departures


def summarise(group: Group, unit: Unit = "return") -> list[Result]:
    """One result per mode of a group that has any."""
    found = (summarise_mode(group, mode, unit) for mode in group.modes)
    return [result for result in found if result is not None]


def summarise_mode(group: Group, mode: str, unit: Unit = "return") -> Result | None:
    """The result of a group in a mode; None where there is none.

    It depends on the records of the group's runs alone, so every verb shows the same numbers.
    """
    scores = [_episodes(run, mode, unit) for run in group.runs]
    scores = [values for values in scores if values.size]
    if not scores:
        return None
    mean, std = stats.mean_and_std_over_seeds(scores)
    in_training = [_episodes(run, "train", unit) for run in group.runs]
    sample = stats.seed_scores(scores) if len(scores) > 1 else scores[0]
    is_return = unit == "return"
    return Result(
        group=group,
        mode=mode,
        unit=unit,
        seeds=len(scores),
        episodes=sum(values.size for values in scores),
        mean=mean,
        std=std,
        mean_interval=stats.bootstrap_interval([sample], stats.mean),
        iqm=stats.bootstrap_interval([sample], stats.interquartile_mean),
        area=_mean_area(group, mode) if is_return else stats.NO_INTERVAL,
        random=random_return(group, mode) if is_return else float("nan"),
        train=stats.mean_and_std_over_seeds(in_training)[0],
        paper=_paper(group.runs[0], mode, unit),
    )


@dataclass(frozen=True)
class Aggregate:
    """How one setting does in one mode over several tasks, each of them a stratum."""

    label: str
    mode: str
    suite: str
    tasks: tuple[str, ...]
    seeds: int
    """Runs, over all tasks."""
    mean: stats.Interval
    iqm: stats.Interval
    """95 % bootstrap intervals: seeds are resampled within each task."""


def aggregate(groups: Sequence[Group]) -> list[Aggregate]:
    """One row per setting, mode and suite that has results on several tasks.

    Returns are pooled as they are, so only within a suite: every task of DMControl pays 0 to 1,000
    an episode, every robot task at most 50.
    """
    pooled: dict[tuple[str, str, str], dict[str, NDArray[np.float64]]] = {}
    for group in groups:
        for mode in group.modes:
            scores = stats.seed_scores([run.final_returns(mode) for run in group.runs])
            if scores.size:
                setting = (group.label, mode, suite(group.task))
                pooled.setdefault(setting, {})[group.task] = scores
    return [
        Aggregate(
            label=label,
            mode=mode,
            suite=family,
            tasks=tuple(by_task),
            seeds=sum(scores.size for scores in by_task.values()),
            mean=stats.bootstrap_interval(list(by_task.values()), stats.mean),
            iqm=stats.bootstrap_interval(list(by_task.values()), stats.interquartile_mean),
        )
        for (label, mode, family), by_task in pooled.items()
        if len(by_task) > 1
    ]


def random_return(group: Group, mode: str) -> float:
    """The random policy's mean return in a mode, over the runs it was evaluated with."""
    return stats.mean_and_std_over_seeds([run.random_returns(mode) for run in group.runs])[0]


def _episodes(run: Run, mode: str, unit: Unit) -> NDArray[np.float64]:
    """What a run's score is the mean of."""
    return run.final_returns(mode) if unit == "return" else run.final_successes(mode)


def _mean_area(group: Group, mode: str) -> stats.Interval:
    """The area of a group: its mean over seeds; a single seed has no interval."""
    found = areas(group.runs, mode)
    if found.size == 1:
        return stats.Interval(float(found[0]), float("nan"), float("nan"))
    return stats.bootstrap_interval([found], stats.mean)


def _paper(run: Run, mode: str, unit: Unit) -> PaperResult | None:
    """The paper's number for a run's setting: always on SAC, and with one view of each kind."""
    recipe = run.config.get("recipe")
    views = [recipe.get(name, 1) for name in "KM"] if isinstance(recipe, dict) else []
    if run.base != "sac" or any(view != 1 for view in views):
        return None
    found = published.lookup(run.task, mode, run.method, run.augment, run.encoder)
    return found if found is not None and found.unit == unit else None
