"""Results: runs that differ in their seed alone, and the rows of the table about them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from svea import envs
from svea.config import Role, fields_with, resolve, to_dict
from svea.errors import UserError
from svea.evidence import published, stats
from svea.evidence.published import PaperResult
from svea.evidence.read import Curve, Run
from svea.words import listed, plural

TEST_MODE = "color_hard"
"""The test mode that cards and headlines show where there is a choice."""

SETTINGS = fields_with(Role.WHAT, Role.LENGTH)
"""Fields of a configuration that say what is learned, not which seed, where or how watched."""

PARTS = {"sac": "base", "ddpg": "base", "dqn": "base",
         "curl": "auxiliary", "soda": "auxiliary", "pad": "auxiliary"}  # fmt: skip
"""Tables of a configuration that count only where this field names them."""

TASK_DECIDES = {"task", "action_repeat", "episode_frames", "eval_mode", "recipe.alpha",
                "recipe.beta"}  # fmt: skip
"""Settings whose usual value depends on the task: across tasks they tell nothing apart."""

FIRST_TO_TELL = ("preset", "base", "auxiliary", "decisions")
"""Settings that tell groups apart best, because a reader chose them; all others come after."""


@dataclass(frozen=True, eq=False)
class Group:
    """Runs of one task and setting, over seeds."""

    runs: tuple[Run, ...]
    label: str
    """The method, with whatever tells it apart from the other groups of the report."""
    unsaid: tuple[str, ...] = ()
    """Settings that also differ among the groups of this preset, and that no label names."""

    @property
    def task(self) -> str:
        """The task all runs share."""
        return self.runs[0].task

    @property
    def method(self) -> str:
        """The method all runs share."""
        return self.runs[0].method

    @property
    def modes(self) -> list[str]:
        """Modes that any run was evaluated in, `train` first."""
        seen = dict.fromkeys(mode for run in self.runs for mode in run.modes)
        return sorted(seen, key=lambda mode: mode != "train")

    @property
    def test_mode(self) -> str | None:
        """The test mode to show first."""
        tests = [mode for mode in self.modes if mode != "train"]
        return TEST_MODE if TEST_MODE in tests else next(iter(tests), None)

    @cached_property
    def departures(self) -> tuple[str, ...]:
        """What keeps the group from being a replication, where the paper has its task."""
        if self.task not in published.TASKS:
            return ()
        run, found = self.runs[0], []
        done = min(run.decisions_done for run in self.runs)
        wanted = published.DECISIONS.get(run.encoder, published.DECISIONS["cnn"])
        if done < wanted:
            found.append(f"{done:,} decisions ({100 * done / wanted:.3g} %)")
        if len(self.runs) < published.SEEDS:
            found.append(plural(len(self.runs), "seed"))
        if run.preset != "paper":
            found.append(f"preset {run.preset}")
        if self.task in envs.ROBOT_TASKS:
            found.append("a robot task of our own")
        if not found and (changed := _changed_settings(run)):
            found.append(f"other settings ({listed(changed)})")
        return tuple(found)


@dataclass(frozen=True, eq=False)
class Result:
    """How a group does in one mode, with what it is to be judged against."""

    group: Group
    mode: str
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
    """The same group's mean return in the training mode; nan where there is none."""
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
        """Whether seeds, decisions and settings are the paper's, so that figures compare."""
        is_whole = self.seeds >= published.SEEDS
        return self.paper is not None and is_whole and not self.group.departures


@dataclass(frozen=True, eq=False)
class Success:
    """How often a group succeeds in one mode, where episodes can."""

    group: Group
    mode: str
    seeds: int
    episodes: int
    rate: float
    """The mean over seeds of each seed's share of successful episodes."""
    std: float
    """Over seeds; nan for a single seed."""
    interval: stats.Interval
    """95 % bootstrap interval: over seeds, or over the episodes of a single seed."""
    paper: PaperResult | None


def group_runs(runs: Sequence[Run]) -> list[Group]:
    """Groups of runs that differ in nothing but their seed, by task and then label."""
    grouped: dict[str, list[Run]] = {}
    for run in runs:
        key = json.dumps([_family(run), _settings(run)], sort_keys=True)
        grouped.setdefault(key, []).append(run)
    families: dict[tuple[str, ...], list[list[Run]]] = {}
    for members in grouped.values():
        members.sort(key=lambda run: (run.seed is None, run.seed or 0, run.name))
        families.setdefault(_family(members[0])[1:], []).append(members)
    groups = [
        Group(tuple(members), label, unsaid)
        for alike in families.values()
        for members, (label, unsaid) in zip(alike, _labels([g[0] for g in alike]), strict=True)
    ]
    return sorted(groups, key=lambda group: (group.task, group.label))


def summarise(group: Group, generator: np.random.Generator) -> list[Result]:
    """One result per mode of a group."""
    train, _ = stats.mean_and_std_over_seeds([r.final_returns("train") for r in group.runs])
    results = []
    for mode in group.modes:
        returns = [run.final_returns(mode) for run in group.runs]
        returns = [values for values in returns if values.size]
        if not returns:
            continue
        mean, std = stats.mean_and_std_over_seeds(returns)
        sample = stats.seed_scores(returns) if len(returns) > 1 else returns[0]
        results.append(
            Result(
                group=group,
                mode=mode,
                seeds=len(returns),
                episodes=sum(values.size for values in returns),
                mean=mean,
                std=std,
                mean_interval=stats.bootstrap_interval([sample], stats.mean, generator),
                iqm=stats.bootstrap_interval([sample], stats.interquartile_mean, generator),
                area=_mean_area(group, mode, generator),
                random=random_return(group, mode),
                train=train,
                paper=_paper_return(group.runs[0], mode),
            )
        )
    return results


def summarise_success(group: Group, generator: np.random.Generator) -> list[Success]:
    """One success rate per mode whose episodes can succeed or fail."""
    found = []
    for mode in group.modes:
        outcomes = [run.final_successes(mode) for run in group.runs]
        outcomes = [values for values in outcomes if values.size]
        if not outcomes:
            continue
        rate, std = stats.mean_and_std_over_seeds(outcomes)
        sample = stats.seed_scores(outcomes) if len(outcomes) > 1 else outcomes[0]
        run = group.runs[0]
        paper = _paper(run, mode)
        found.append(
            Success(
                group=group,
                mode=mode,
                seeds=len(outcomes),
                episodes=sum(values.size for values in outcomes),
                rate=rate,
                std=std,
                interval=stats.bootstrap_interval([sample], stats.mean, generator),
                paper=paper if paper is not None and paper.unit == "success" else None,
            )
        )
    return found


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
    """95 % bootstrap intervals: seeds are drawn anew within each task."""


def aggregate(groups: Sequence[Group], generator: np.random.Generator) -> list[Aggregate]:
    """One row per setting, mode and suite that has results on several tasks.

    Returns are pooled as they are, so only within a suite: every task of DMControl pays 0 to 1,000
    an episode, every robot task at most 50.
    """
    pooled: dict[tuple[str, str, str], dict[str, NDArray[np.float64]]] = {}
    for group in groups:
        for mode in group.modes:
            scores = stats.seed_scores([run.final_returns(mode) for run in group.runs])
            if scores.size:
                place = (group.label, mode, suite(group.task))
                pooled.setdefault(place, {})[group.task] = scores
    return [
        Aggregate(
            label=label,
            mode=mode,
            suite=family,
            tasks=tuple(by_task),
            seeds=sum(scores.size for scores in by_task.values()),
            mean=stats.bootstrap_interval(list(by_task.values()), stats.mean, generator),
            iqm=stats.bootstrap_interval(
                list(by_task.values()), stats.interquartile_mean, generator
            ),
        )
        for (label, mode, family), by_task in pooled.items()
        if len(by_task) > 1
    ]


def suite(task: str) -> str:
    """The tasks whose returns have one scale; a user's own task stands for itself.

    >>> suite("walker_walk"), suite("robot_push"), suite("my_package:make_env")
    ('DMControl', 'robot', 'my_package:make_env')
    """
    if task in envs.ROBOT_TASKS:
        return "robot"
    return "DMControl" if task in envs.TASKS else task


def areas(runs: Sequence[Run], mode: str, until: float | None = None) -> NDArray[np.float64]:
    """The area under each run's evaluation curve, up to one decision that all reach.

    Args:
        runs: to be compared, so that all areas end at the same decision.
        mode: of the evaluations.
        until: where the areas end; default: the last decision that all runs were evaluated at.
    """
    curves = [run.evaluation_curve(mode) for run in runs]
    curves = [curve for curve in curves if curve.decisions.size]
    if not curves:
        return np.empty(0)
    end = min(float(curve.decisions[-1]) for curve in curves) if until is None else until
    found = np.array([stats.area_under_curve(c.decisions, c.returns, end) for c in curves])
    return found[np.isfinite(found)]


def _mean_area(group: Group, mode: str, generator: np.random.Generator) -> stats.Interval:
    """The area of a group: its mean over seeds; a single seed has no interval."""
    found = areas(group.runs, mode)
    if found.size == 1:
        return stats.Interval(float(found[0]), float("nan"), float("nan"))
    return stats.bootstrap_interval([found], stats.mean, generator)


def random_return(group: Group, mode: str) -> float:
    """The random policy's mean return in a mode, over the runs it was evaluated beside."""
    return stats.mean_and_std_over_seeds([run.random_returns(mode) for run in group.runs])[0]


def mean_curve(group: Group, mode: str) -> tuple[Curve, NDArray[np.float64]]:
    """The evaluation curve averaged over seeds, and its deviation (nan for one seed)."""
    grid, heights = common_curve([run.evaluation_curve(mode) for run in group.runs])
    if not grid.size:
        return Curve(grid, grid), grid
    std = heights.std(axis=0, ddof=1) if len(heights) > 1 else np.full(grid.shape, np.nan)
    return Curve(grid, heights.mean(axis=0)), std


def common_curve(curves: Sequence[Curve]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Curves of several seeds on one grid of decisions, as (points,) and (seeds, points).

    Seeds are compared where all of them have been evaluated, at every decision where one was.
    """
    curves = [curve for curve in curves if curve.decisions.size]
    if not curves:
        return np.empty(0), np.empty((0, 0))
    first = max(curve.decisions[0] for curve in curves)
    last = min(curve.decisions[-1] for curve in curves)
    grid = np.unique(np.concatenate([curve.decisions for curve in curves]))
    grid = grid[(grid >= first) & (grid <= last)]
    return grid, np.array([np.interp(grid, c.decisions, c.returns) for c in curves])


def caveats(group: Group) -> list[str]:
    """What a reader must know before comparing this group with anything."""
    found = []
    seeds = Counter(run.seed for run in group.runs)
    if len(group.runs) < published.SEEDS:
        found.append(f"few seeds: {len(group.runs)} where the paper has {published.SEEDS}")
    if repeated := sorted(str(seed) for seed, count in seeds.items() if count > 1):
        found.append(f"seed {', '.join(repeated)} appears more than once and is counted as often")
    run = group.runs[0]
    if run.preset not in ("paper", "unknown"):
        found.append(f"preset {run.preset!r}: a smaller setting than the paper's, no replication")
    elif other := [one for one in group.departures if "decisions" in one or "settings" in one]:
        found.append(f"{', '.join(other)}: not the paper's, no replication")
    if group.unsaid:
        found.append(f"settings of these runs differ in more than their labels say: "
                     f"{listed(group.unsaid)}")  # fmt: skip
    if run.config.get("eval_actions") == "sampled":
        found.append("evaluations sample actions; the paper takes the policy's most likely one")
    for what, modes in _generated(run).items():
        named = ", ".join(sorted(modes))
        found.append(f"{named}: procedural or generated data, not the benchmark's ({what})")
    return found


def _family(run: Run) -> tuple[str, ...]:
    """What a reader tells runs apart by."""
    return run.task, run.method, run.augment, run.encoder


def _settings(run: Run) -> dict[str, str]:
    """Every setting that changes what is learned, under its dotted name."""
    settings: dict[str, str] = {}
    for name, value in run.config.items():
        unused = name in PARTS and getattr(run, PARTS[name]) != name
        if name not in SETTINGS or unused:
            continue
        inner = value if isinstance(value, dict) else {"": value}
        settings |= {f"{name}.{key}".rstrip("."): str(given) for key, given in inner.items()}
    return settings


def _labels(first_runs: list[Run]) -> list[tuple[str, tuple[str, ...]]]:
    """Labels for groups of one method, short ones, and what also differs within a preset.

    A label is the method's name and then as few settings as tell the group from all others. Groups
    of several tasks with the same settings have the same label, and no others have.
    """
    _, method, augment, encoder = _family(first_runs[0])
    base = method + (f" + {augment}" if augment != "none" else "")
    base += f" ({encoder})" if encoder != "cnn" else ""
    settings = _across_tasks([_settings(run) for run in first_runs])
    named = _tell_apart(settings)
    labels = []
    for own, names in zip(settings, named, strict=True):
        alike = [n for n, one in enumerate(settings) if one.get("preset") == own.get("preset")]
        said = {name for place in alike for name in named[place]}
        rest = set(_differing([settings[place] for place in alike])) - said
        unsaid = sorted(name for name in rest if PARTS.get(name.partition(".")[0]) not in said)
        words = [f"{name} {own.get(name, 'unset')}" for name in names]
        labels.append((", ".join([base, *words]), tuple(unsaid)))
    return labels


def _across_tasks(settings: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    """Settings without those that the task decides, as far as they are the same within each."""
    by_task: dict[str | None, list[dict[str, str]]] = {}
    for one in settings:
        by_task.setdefault(one.get("task"), []).append(one)
    varied = {name for members in by_task.values() for name in _differing(members)}
    dropped = TASK_DECIDES - varied
    return [{k: v for k, v in one.items() if k not in dropped} for one in settings]


def _tell_apart(settings: Sequence[dict[str, str]]) -> list[list[str]]:
    """For each, the names of the settings that tell it from the others, first things first."""
    names = _differing(settings)
    if not names:
        return [[] for _ in settings]
    name = min(names, key=lambda one: _rank(one, settings))
    chosen: list[list[str]] = [[] for _ in settings]
    for value in {one.get(name) for one in settings}:
        places = [place for place, one in enumerate(settings) if one.get(name) == value]
        for place, rest in zip(places, _tell_apart([settings[p] for p in places]), strict=True):
            chosen[place] = [name, *rest]
    return chosen


def _rank(name: str, settings: Sequence[dict[str, str]]) -> tuple[int, int, str]:
    """Where a setting stands among those that tell apart: chosen ones, then by how well it does."""
    known = FIRST_TO_TELL.index(name) if name in FIRST_TO_TELL else len(FIRST_TO_TELL)
    return known, -len({one.get(name) for one in settings}), name


def _differing(settings: Sequence[dict[str, str]]) -> list[str]:
    """Names of settings that are not the same everywhere."""
    names = {name for one in settings for name in one}
    return [name for name in names if len({one.get(name) for one in settings}) > 1]


def _changed_settings(run: Run) -> list[str]:
    """Settings that differ from the paper's for a run's task, method and encoder."""
    try:
        paper = _paper_settings(run.task, run.method, run.encoder)
    except UserError:  # a name of another version
        return ["method"]
    own = _settings(run)
    free = ("decisions", "augment", "overlay_dir", "precision")
    return sorted(n for n in own if n in paper and n not in free and own[n] != paper[n])


@lru_cache
def _paper_settings(task: str, method: str, encoder: str) -> dict[str, str]:
    """The settings of preset `paper`."""
    config = to_dict(resolve(task, method=method, encoder=encoder))
    return _settings(Run(Path(), config, [], []))


def _paper(run: Run, mode: str) -> PaperResult | None:
    """The paper's figure for a run's setting; the base of all its figures is SAC."""
    if run.base != "sac":
        return None
    return published.lookup(run.task, mode, run.method, run.augment, run.encoder)


def _paper_return(run: Run, mode: str) -> PaperResult | None:
    """The paper's return for a run's setting; its success rates do not compare with returns."""
    found = _paper(run, mode)
    return found if found is not None and found.unit == "return" else None


def _generated(run: Run) -> dict[str, list[str]]:
    """How provenance records say that pictures were made up, and the modes that say so."""
    found: dict[str, list[str]] = {}
    for mode, provenance in run.provenance().items():
        telling = [f"{k}: {v}" for k, v in provenance.items() if _says_generated(k, v)]
        if telling:
            found.setdefault("; ".join(telling), []).append(mode)
    return found


def _says_generated(key: str, value: Any) -> bool:
    """Whether one entry of a provenance record means generated pictures."""
    words = ("procedural", "generated", "synthetic")
    if isinstance(value, bool):
        return value and any(word in key.lower() for word in words)
    return isinstance(value, str) and any(word in value.lower() for word in words)
