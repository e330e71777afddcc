"""The paper's claims in numbers: each with the rule that decides it, and our number."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from svea.paper.experiments import (
    AUGMENTS,
    EXPERIMENTS,
    TASKS,
    Scale,
    Setting,
    experiment,
    read_table,
)
from svea.paper.pages import ExperimentResults, gather
from svea.results import summary
from svea.results.read import Run

Evidence = dict[str, ExperimentResults]
CellMean = Callable[[str, Setting, str], float]
"""The mean return of a task, setting and mode; nan where it is not known."""


@dataclass(frozen=True)
class Claim:
    """A number in the paper's text, as `claims.toml` has it."""

    text: str
    paper: str
    """The number."""
    rule: str
    """What decides it; ours where the paper gives none."""
    experiments: tuple[str, ...]
    """Whose runs it needs."""
    note: str = ""
    """What the paper's own tables say about it."""


@dataclass(frozen=True)
class Verdict:
    """A claim and our number."""

    claim: Claim
    ours: str


def verdicts(scale: Scale, folder: Path) -> list[Verdict]:
    """Every claim, decided as far as there are runs."""
    needed = dict.fromkeys(name for claim in CLAIMS.values() for name in claim.experiments)
    evidence = {name: gather(experiment(name), scale, folder) for name in needed}
    found = []
    for name, claim in CLAIMS.items():
        ours = RULES[name](evidence)
        if ours is None:
            ours = "needs the runs of " + " and ".join(f"svea paper {n}" for n in claim.experiments)
        elif scale.suffix:
            ours += f" ({scale.suffix})"
        found.append(Verdict(claim, ours))
    return found


# The rules ----------------------------------------------------------------------------------------


def _stability(evidence: Evidence) -> str | None:
    """In how many of the 30 pairs SVEA's area under the training curve is larger."""
    one = evidence["fig-stability"]
    wins = decided = 0
    for task in TASKS:
        for augment in AUGMENTS:
            svea, drq = (
                one.of(_setting("fig-stability", method, augment), [task])
                for method in ("svea", "drq")
            )
            better = more_sample_efficient(svea, drq)
            decided += better is not None
            wins += bool(better)
    return f"{wins} of {decided}" + _incomplete(decided, 30) if decided else None


def more_sample_efficient(ours: list[Run], theirs: list[Run]) -> bool | None:
    """Whether the mean area under our training curves is larger, up to where all were evaluated."""
    if not ours or not theirs:
        return None
    areas = summary.areas([*ours, *theirs], "train")
    if areas.size != len(ours) + len(theirs):
        return None
    return bool(areas[: len(ours)].mean() > areas[len(ours) :].mean())


def _benchmark(evidence: Evidence) -> str | None:
    """Cells of DMControl-GB in which SVEA is best, from our runs."""

    def mean(task: str, setting: Setting, mode: str) -> float:
        name = "table-video-hard" if mode == "video_hard" else "table1"
        return evidence[name].mean(task, setting, mode)

    wins, decided = best_cells(mean)
    return f"{wins} of {decided}" + _incomplete(decided, 15) if decided else None


def best_cells(mean: CellMean) -> tuple[int, int]:
    """In how many cells a SVEA column is above every other, and how many cells are complete."""
    wins = decided = 0
    for name, modes in (("table1", ("color_hard", "video_easy")), ("table-video-hard", None)):
        one = EXPERIMENTS[name]
        for mode in modes or one.modes:
            for task in one.tasks:
                means = {s: mean(task, s, mode) for s in one.settings}
                if any(map(math.isnan, means.values())):
                    continue
                ours = max(value for s, value in means.items() if s.method == "svea")
                rest = max(value for s, value in means.items() if s.method != "svea")
                decided += 1
                wins += ours > rest
    return wins, decided


def _distracting(evidence: Evidence) -> str | None:
    """SVEA's gain over DrQ at the lowest intensity, for either augmentation."""
    one = evidence["fig-distracting"]
    lowest = one.experiment.modes[0]
    base = _mean_over_tasks(one, _setting("fig-distracting", "drq", "none"), lowest)
    gains = []
    for augment in ("conv", "overlay"):
        setting = _setting("fig-distracting", "svea", augment)
        ours = _mean_over_tasks(one, setting, lowest)
        if math.isfinite(ours) and base > 0:
            gains.append(f"{_percent(ours, base)} ({augment})")
    return ", ".join(gains) or None


def _wall_time(evidence: Evidence) -> str | None:
    """How much longer the first DrQ takes that is as sample efficient as SVEA."""
    one = evidence["fig-km"]
    svea = one.of(_setting("fig-km", "svea", "conv"))
    tried = []
    for setting in (s for s in one.experiment.settings if s.method == "drq"):
        drq = one.of(setting)
        better = more_sample_efficient(svea, drq)
        if better is None:
            return None
        ratio = summary.seconds_per_decision(drq) / summary.seconds_per_decision(svea)
        if not better:
            return f"{ratio:.1f}x ({setting.label})"
        tried.append(f"{setting.label} {ratio:.1f}x")
    return "none is as sample efficient: " + ", ".join(tried)


def _vit_gain(evidence: Evidence, task: str) -> str | None:
    """SVEA's gain over DrQ on unseen colours with a ViT."""
    one = evidence["fig-vit"]
    svea, drq = (
        one.mean(task, _setting("fig-vit", method, augment), "color_hard")
        for method, augment in (("svea", "conv"), ("drq", "none"))
    )
    known = math.isfinite(svea) and math.isfinite(drq) and drq > 0
    return _percent(svea, drq) if known else None


RULES: dict[str, Callable[[Evidence], str | None]] = {
    "stability": _stability,
    "benchmark": _benchmark,
    "distracting": _distracting,
    "wall-time": _wall_time,
    "vit-walker": partial(_vit_gain, task="walker_walk"),
    "vit-cartpole": partial(_vit_gain, task="cartpole_swingup"),
}
"""What decides each claim: our number, or None where runs are missing."""
CLAIMS = {
    name: Claim(**keys | {"experiments": tuple(keys["experiments"])})
    for name, keys in read_table("claims.toml").items()
}


def _setting(name: str, method: str, augment: str) -> Setting:
    """The setting of an experiment with a method and augmentation."""
    settings = EXPERIMENTS[name].settings
    return next(s for s in settings if (s.method, s.augment) == (method, augment))


def _mean_over_tasks(found: ExperimentResults, setting: Setting, mode: str) -> float:
    """The mean over tasks of means over seeds; nan unless every task has one."""
    return float(np.mean([found.mean(t, setting, mode) for t in TASKS]))


def _percent(ours: float, theirs: float) -> str:
    """A gain."""
    return f"{100 * (ours / theirs - 1):+.0f} %"


def _incomplete(decided: int, planned: int) -> str:
    """A word where not everything could be decided."""
    return "" if decided == planned else f" decided so far ({planned} in all)"
