"""The paper's claims in numbers: each with the rule that decides it, our number, and one word.

Most claims are comparisons, which `claims.toml` has as data. A comparison is a difference of means
over seeds, averaged over tasks, with its 95 % t interval (Welch: seeds of a task and side have a
spread of their own). Half of that interval is the smallest difference that so many seeds could have
shown; one seed shows nothing. The intervals of pages are bootstraps over seeds and worlds, which
are too narrow for three seeds to decide anything.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from scipy.special import stdtrit

from svea.core.words import interval, number, rate, significant
from svea.paper.experiments import (
    AUGMENTS,
    EXPERIMENTS,
    Edition,
    Experiment,
    Setting,
    read_table,
    with_tuples,
)
from svea.paper.pages import TABLE_1, ExperimentResults, gather, mean_of
from svea.results.stats import mean_and_std

Evidence = dict[str, ExperimentResults]
HOLDS, FAILS, UNDECIDED = "holds", "does not hold", "undecided"
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Claim:
    """What the paper says, as `claims.toml` has it."""

    text: str
    paper: str
    """Its number."""
    rule: str
    """What decides it; ours where the paper gives none."""
    experiments: tuple[str, ...]
    """Whose runs it needs."""
    note: str = ""
    """What the paper's own tables say about it."""
    sides: tuple[str, ...] = ()
    """Of a comparison: the setting that should be above the other one, by their labels; what is
    compared (a name in `pages.MEASURES`), in which mode, and on which tasks (none: all)."""
    measure: str = "return"
    mode: str = "color_hard"
    tasks: tuple[str, ...] = ()
    margin: float = 0.0
    """The share of the other's number by which ours may be below it."""


@dataclass(frozen=True)
class Verdict:
    """A claim, our number, and what it decides."""

    claim: Claim
    ours: str
    word: str = UNDECIDED
    smallest: str = ""
    """The smallest difference that so many seeds could have shown."""


@dataclass(frozen=True)
class Difference:
    """How much higher one side's mean is than the other's, averaged over tasks."""

    ours: float
    theirs: float
    half: float
    """Of its interval; nan where a side has one seed."""

    @classmethod
    def of(cls, pairs: Iterable[Sequence[Sequence[float]]]) -> Difference | None:
        """From the scores of both sides on each task; None where a side has none.

        >>> Difference.of([([5.0, 7.0], [1.0, 1.0])])  # doctest: +ELLIPSIS
        Difference(ours=6.0, theirs=1.0, half=12.706...)
        """
        pairs = list(pairs)
        if not pairs or not all(side for pair in pairs for side in pair):
            return None
        found = np.array([[mean_and_std(side) for side in pair] for pair in pairs])
        ours, theirs = found[..., 0].mean(axis=0).tolist()
        counts = np.array([[len(side) for side in pair] for pair in pairs])
        errors = found[..., 1] ** 2 / counts
        total = float(errors.sum())
        if not total > 0:  # one seed, or none differs from the others
            return cls(ours, theirs, total)
        freedom = total**2 / float((errors**2 / (counts - 1)).sum())
        reach = float(stdtrit(freedom, (1 + CONFIDENCE) / 2))  # of Student's distribution
        return cls(ours, theirs, reach * math.sqrt(total) / len(pairs))

    @property
    def gain(self) -> float:
        """The difference."""
        return self.ours - self.theirs

    def verdict(self, claim: Claim, before: str = "", more: str = "") -> Verdict:
        """What it decides about a claim: whether it is above what the margin allows."""
        show = SHOWN.get(claim.measure, number)
        if claim.measure == "return" and self.theirs > 0:
            before += f"{100 * (self.ours / self.theirs - 1):+.0f} %: "
        ends = interval(self.gain - self.half, self.gain + self.half, show)
        between = f"{show(self.ours)} against {show(self.theirs)}, difference {show(self.gain)}"
        ours = f"{before}{f'{between} {ends}'.rstrip()}{more}"
        lead = self.gain + claim.margin * abs(self.theirs)
        if not math.isfinite(self.half):
            return Verdict(claim, ours, smallest="none: one seed")
        word = HOLDS if lead > self.half else FAILS if lead < -self.half else UNDECIDED
        return Verdict(claim, ours, word, show(self.half))


SHOWN = {"success": rate, "variance": significant, "seconds": significant}
"""How the numbers of some measures are written."""


def verdicts(edition: Edition, runs: Path) -> list[Verdict]:
    """Every claim that the edition has experiments for, decided as far as there are runs."""
    has = edition.experiments.keys()
    claims = {name: one for name, one in CLAIMS.items() if has >= {*one.experiments}}
    needed = dict.fromkeys(name for claim in claims.values() for name in claim.experiments)
    evidence = {name: gather(edition.experiment(name), edition, runs) for name in needed}
    found = []
    for name, claim in claims.items():
        verdict = RULES.get(name, _comparison)(claim, evidence)
        if verdict is None:
            flag = f" --edition {edition.name}" if edition.sizes else ""
            names = " and ".join(f"svea paper {n}{flag}" for n in claim.experiments)
            verdict = Verdict(claim, f"needs the runs of {names}")
        found.append(verdict)
    return found


# The rules ----------------------------------------------------------------------------------------


def _comparison(claim: Claim, evidence: Evidence) -> Verdict | None:
    """One setting against another in one measure."""
    found = evidence[claim.experiments[0]]
    one = found.experiment
    tasks = [task for task in claim.tasks if task in one.tasks]
    other = "" if tasks or not claim.tasks else f" (on {', '.join(one.tasks)})"
    both = [next(s for s in one.settings if s.label == name) for name in claim.sides]
    difference = _between(found, both, claim, tasks or one.tasks)
    return difference.verdict(claim, more=other) if difference else None


def _between(
    found: ExperimentResults, both: Iterable[Setting], claim: Claim, tasks: Iterable[str] = ()
) -> Difference | None:
    """The difference of two settings in what a claim is about; None where runs are missing."""
    both, tasks = list(both), tasks or found.experiment.tasks
    return Difference.of(
        [found.scores(task, one, claim.measure, claim.mode) for one in both] for task in tasks
    )


def _stability(claim: Claim, evidence: Evidence) -> Verdict | None:
    """In how many pairs SVEA's area under the training curve is larger."""
    one, pairs = evidence["fig-stability"], []
    for task, augment in itertools.product(one.experiment.tasks, AUGMENTS):
        both = (_setting(one, method, augment) for method in ("svea", "drq"))
        pairs.append([one.scores(task, setting, "area") for setting in both])
    known = [pair for pair in pairs if all(pair)]
    wins = sum(bool(np.mean(ours) > np.mean(theirs)) for ours, theirs in known)
    difference, count = Difference.of(known), _count(wins, len(known), len(pairs))
    return difference.verdict(claim, count) if difference else None


def _benchmark(claim: Claim, evidence: Evidence) -> Verdict | None:
    """Cells of DMControl-GB in which SVEA is best, and its lead over the best other method."""
    one, hard = evidence["table1"], evidence["table-video-hard"]

    def mean(task: str, setting: Setting, mode: str) -> float:
        return (hard if mode == "video_hard" else one).mean(task, setting, mode)

    means = {}
    for setting in one.experiment.settings:
        each = [mean_of(one.scores(t, setting, claim.measure)) for t in one.experiment.tasks]
        if np.isfinite(each).all():
            means[setting] = np.mean(each)
    sides = [[s for s in means if (s.method == "svea") == ours] for ours in (True, False)]
    if not all(sides):
        return None
    both = [max(side, key=lambda setting: means[setting]) for side in sides]
    wins, decided = best_cells(mean, one.experiment, hard.experiment)
    count = _count(wins, decided, 3 * len(one.experiment.tasks))
    more = f" ({' against '.join(setting.label for setting in both)})"
    difference = _between(one, both, claim)
    return difference.verdict(claim, count, more) if difference else None


def best_cells(
    mean: Callable[[str, Setting, str], float],
    table: Experiment = EXPERIMENTS["table1"],
    hard: Experiment = EXPERIMENTS["table-video-hard"],
) -> tuple[int, int]:
    """In how many cells a SVEA column is above every other, and how many cells are complete."""
    wins = decided = 0
    for one, modes in ((table, TABLE_1), (hard, ("video_hard",))):
        for mode, task in itertools.product(modes, one.tasks):
            means = {s: mean(task, s, mode) for s in one.settings}
            if any(map(math.isnan, means.values())):
                continue
            ours = max(value for s, value in means.items() if s.method == "svea")
            rest = max(value for s, value in means.items() if s.method != "svea")
            decided += 1
            wins += ours > rest
    return wins, decided


def _wall_time(claim: Claim, evidence: Evidence) -> Verdict | None:
    """How much longer the first DrQ takes that is as sample efficient as SVEA."""
    one, last = evidence["fig-km"], None
    for setting in (s for s in one.experiment.settings if s.method == "drq"):
        claims = [replace(claim, measure=measure) for measure in ("area", "seconds")]
        both = (setting, _setting(one, "svea", "conv"))
        area, seconds = (_between(one, both, each) for each in claims)
        if area is None or seconds is None:
            return None
        if area.gain >= 0:
            ratio = f"{seconds.ours / seconds.theirs:.1f}x ({setting.label}); seconds a decision "
            return seconds.verdict(claims[1], ratio)
        last = area.verdict(claims[0], f"none is as sample efficient: {setting.label} ")
    return last and replace(last, word=HOLDS if last.word == FAILS else UNDECIDED)


RULES: dict[str, Callable[[Claim, Evidence], Verdict | None]] = {
    "stability": _stability,
    "benchmark": _benchmark,
    "wall-time": _wall_time,
}
"""What decides the claims that are more than a comparison."""
CLAIMS = {name: Claim(**with_tuples(own)) for name, own in read_table("claims.toml").items()}


def _setting(one: ExperimentResults, method: str, augment: str) -> Setting:
    """The setting of an experiment with a method and augmentation."""
    settings = one.experiment.settings
    return next(s for s in settings if (s.method, s.augment) == (method, augment))


def _count(wins: int, decided: int, planned: int) -> str:
    """A count as the paper gives it, with a word where not everything could be decided."""
    rest = "" if decided == planned else f" decided so far ({planned} in all)"
    return f"{wins} of {decided}{rest}; "
