"""Two methods side by side, over tasks and seeds: who is better, by how much, and how sure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from svea.core.errors import UserError, unknown_name
from svea.results import Group, areas, group_runs, stats, suite
from svea.results.read import read_runs
from svea.runs import zoo

Measure = Literal["return", "area", "success"]


@dataclass(frozen=True, eq=False)
class Match:
    """The runs of both sides that compete: on one task and, if both vary it, one augmentation."""

    name: str
    ours: Group
    theirs: Group


@dataclass(frozen=True)
class Intervals:
    """How much better ours is, and how likely, with 95 % bootstrap intervals."""

    differences: tuple[stats.Interval, ...]
    chances: tuple[stats.Interval, ...]
    """One for each match."""
    difference: stats.Interval | None
    """Over all matches, each of them a stratum; None where their returns have other scales."""
    chance: stats.Interval
    """Over all matches."""

    @classmethod
    def of(
        cls, ours: Sequence[stats.Scores], theirs: Sequence[stats.Scores], one_scale: bool
    ) -> Intervals:
        """Compare two sides, given by match."""
        chance, difference = stats.probability_of_improvement, stats.mean_difference
        each = list(zip(ours, theirs, strict=True))
        return cls(
            differences=tuple(difference([x], [y]) for x, y in each),
            chances=tuple(chance([x], [y]) for x, y in each),
            difference=difference(ours, theirs) if one_scale else None,
            chance=chance(ours, theirs),
        )


@dataclass(frozen=True, eq=False)
class Comparison:
    """Two sides in one mode, by one measure."""

    mode: str
    measure: Measure
    names: tuple[str, ...]
    """Of the matches; both sides have one entry for each."""
    labels: tuple[tuple[str, str], ...]
    """The settings of our and of the other side, for each match."""
    ours: tuple[NDArray[np.float64], ...]
    theirs: tuple[NDArray[np.float64], ...]
    """A score per seed."""
    over_seeds: Intervals
    over_worlds: Intervals | None
    """Over seeds and worlds; None for areas, because curves keep no episodes."""

    @property
    def shown(self) -> Intervals:
        """The intervals that tables show: over seeds and worlds where there are any."""
        return self.over_worlds or self.over_seeds

    @property
    def single_pairs(self) -> tuple[bool, ...]:
        """For each match, whether both sides have one seed: which of two agents is better."""
        return tuple(x.size == y.size == 1 for x, y in zip(self.ours, self.theirs, strict=True))

    def to_json(self) -> dict[str, Any]:
        """All numbers, in values that JSON can hold."""
        kinds = {"": self.over_seeds, "_over_worlds": self.over_worlds}
        made = {kind: intervals for kind, intervals in kinds.items() if intervals}
        each = zip(self.names, self.labels, self.ours, self.theirs, strict=True)
        matches = [
            {"name": name, "settings": list(labels), "ours": x.tolist(), "theirs": y.tolist()}
            for name, labels, x, y in each
        ]
        all_of_them: dict[str, Any] = {}
        for kind, found in made.items():
            for match, gain, chance in zip(matches, found.differences, found.chances, strict=True):
                match |= {f"difference{kind}": _ends(gain), f"probability{kind}": _ends(chance)}
            whole = _ends(found.difference) if found.difference else None
            all_of_them |= {f"difference{kind}": whole, f"probability{kind}": _ends(found.chance)}
        head = {"mode": self.mode, "measure": self.measure, "matches": matches}
        return {**head, **all_of_them, "wins": self.wins}

    @property
    def wins(self) -> int:
        """Matches in which our mean is the higher one: what the paper's "27 of 30" counts."""
        pairs = zip(self.ours, self.theirs, strict=True)
        return sum(bool(x.mean() > y.mean()) for x, y in pairs)


def _ends(one: stats.Interval) -> dict[str, float | None]:
    """An interval for JSON, which has no nan: null where one score has no interval."""
    return {name: None if math.isnan(value) else value for name, value in asdict(one).items()}


def find_side(text: str, beneath: Path) -> tuple[list[Group], list[str]]:
    """The groups that a user means, and what could not be read on the way.

    Args:
        text: a folder of runs, or an agent of the zoo; else a method (svea), with or without its
            augmentation (svea+conv), or a label as `svea eval` prints it.
        beneath: where to look for names.
    """
    if Path(text).exists() or zoo.is_name(text):
        runs, problems = read_runs([Path(text)])
        return group_runs(runs), problems
    if not beneath.is_dir():
        raise UserError(
            f"{text!r} is not a folder, and neither is {str(beneath)!r}, where names are looked "
            "up; give a folder of runs, or --runs"
        )
    runs, problems = read_runs([beneath])
    groups = group_runs(runs)
    names = {group: (group.method, _short(group), group.label) for group in groups}
    found = [g for g in groups if _plain(text) in map(_plain, names[g])]
    if not found:
        allowed = {name for method, short, _ in names.values() for name in (method, short)}
        error = unknown_name("method or folder", text, allowed)
        raise UserError(f"{error} (the runs in {beneath}), or any folder of runs")
    return found, problems


def _short(group: Group) -> str:
    """svea+conv."""
    return f"{group.method}+{group.runs[0].augment}"


def _plain(name: str) -> str:
    """A name however it was typed: `svea+overlay-drift` is `svea + overlay_drift`."""
    return name.replace(" ", "").replace("-", "_")


def matches(
    ours: Sequence[Group], theirs: Sequence[Group], names: tuple[str, str] = ("", "")
) -> tuple[list[Match], list[str]]:
    """Pair the groups of two sides, and name what has no partner.

    Args:
        ours: one side.
        theirs: the other.
        names: what the user called them. Where augmentations do not pair, `drq` is the setting
            with just that label, and not `drq + conv`, too.

    Raises:
        UserError: A side has several settings on one task, or nothing pairs.
    """
    by_augment = all(len({g.runs[0].augment for g in side}) > 1 for side in (ours, theirs))

    def by_name(side: Sequence[Group], typed: str) -> dict[str, Group]:
        exact = [] if by_augment else [g for g in side if _plain(g.label) == _plain(typed)]
        named: dict[str, list[Group]] = {}
        for group in exact or side:
            name = f"{group.task} {group.runs[0].augment}" if by_augment else group.task
            named.setdefault(name, []).append(group)
        for name, groups in named.items():
            if len(groups) > 1:
                whose = f" of {typed!r}" if typed else ""
                one_of = " or ".join(repr(group.label) for group in groups)
                raise UserError(
                    f"several settings{whose} on {name}: {one_of}; name one of them so (--runs "
                    "says where names are looked for), or give a folder that holds one"
                )
        return {name: groups[0] for name, groups in named.items()}

    a, b = by_name(ours, names[0]), by_name(theirs, names[1])
    alone = [f"{name}: only on one side, left out" for name in sorted(a.keys() ^ b.keys())]
    both = [Match(name, a[name], b[name]) for name in a if name in b]
    if not both:
        raise UserError(
            f"nothing to compare: one side has {', '.join(a)}; the other {', '.join(b)}"
        )
    return both, alone


def compare(pairs: Sequence[Match], mode: str, measure: Measure) -> Comparison | None:
    """Compare two sides in a mode; None where no match has scores on both sides."""
    scored = [(pair, *_scores(pair, mode, measure)) for pair in pairs]
    scored = [(pair, x, y) for pair, x, y in scored if x.size and y.size]
    if not scored:
        return None
    competing, ours, theirs = zip(*scored, strict=True)
    scales = {"success" if measure == "success" else suite(pair.ours.task) for pair in competing}
    over_worlds = None
    if measure != "area":
        ours_by, theirs_by = zip(*(_by_world(p, mode, measure) for p in competing), strict=True)
        over_worlds = Intervals.of(ours_by, theirs_by, len(scales) == 1)
    return Comparison(
        mode=mode,
        measure=measure,
        names=tuple(pair.name for pair in competing),
        labels=tuple((pair.ours.label, pair.theirs.label) for pair in competing),
        ours=ours,
        theirs=theirs,
        over_seeds=Intervals.of(ours, theirs, len(scales) == 1),
        over_worlds=over_worlds,
    )


def _by_world(
    pair: Match, mode: str, measure: str
) -> tuple[stats.SeedsAndWorlds, stats.SeedsAndWorlds]:
    """The episodes of each side by seed and world, with the worlds of both."""
    sides = [[r.final_by_world(mode, measure) for r in g.runs] for g in (pair.ours, pair.theirs)]
    ours, theirs = sides
    return stats.SeedsAndWorlds.of(ours, theirs), stats.SeedsAndWorlds.of(theirs, ours)


def _scores(
    pair: Match, mode: str, measure: Measure
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """A score per seed of each side; areas of both sides end at the same decision."""
    sides = pair.ours.runs, pair.theirs.runs
    if measure == "area":
        ends = [float(curve.decisions[-1]) for runs in sides for run in runs
                if (curve := run.evaluation_curve(mode)).decisions.size]  # fmt: skip
        until = min(ends, default=0.0)
        ours, theirs = (areas(runs, mode, until) for runs in sides)
    else:
        ours, theirs = (
            stats.seed_scores([run.finals(mode, measure) for run in runs]) for runs in sides
        )
    return ours, theirs
