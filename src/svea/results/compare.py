"""Two methods side by side, over tasks and seeds: who is better, by how much, and how sure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from svea.config.modes import GROUPS, expand_modes, in_order
from svea.core.errors import UserError, unknown_name
from svea.core.words import plural, rate
from svea.results import stats
from svea.results.groups import Group, caveat_notes, group_runs, shown_modes, suite
from svea.results.read import read_runs
from svea.results.stats import Interval
from svea.results.summary import areas
from svea.results.tables import Cell, Table, estimate, show
from svea.runs import zoo

Measure = Literal["return", "area", "success"]
LONGEST_NAME = 16  # in the head of a column


@dataclass(frozen=True, eq=False)
class Match:
    """The runs of both sides that compete: on one task and, if both vary it, one augmentation."""

    name: str
    ours: Group
    theirs: Group


@dataclass(frozen=True)
class Intervals:
    """How much better ours is, and how likely, with 95 % bootstrap intervals."""

    differences: tuple[Interval, ...]
    chances: tuple[Interval, ...]
    """One for each match."""
    difference: Interval | None
    """Over all matches, each of them a stratum; None where their returns have other scales."""
    chance: Interval
    """Over all matches."""

    @classmethod
    def of(
        cls, ours: Sequence[stats.Scores], theirs: Sequence[stats.Scores], one_scale: bool
    ) -> Intervals:
        """Compare two sides, given by match."""
        difference, chance = (
            partial(stats.contrast_interval, by) for by in (stats.difference, stats.chance)
        )
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
    matches: tuple[Match, ...]
    ours: tuple[NDArray[np.float64], ...]
    theirs: tuple[NDArray[np.float64], ...]
    """A score per seed, for each match."""
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

    @property
    def wins(self) -> int:
        """Matches in which our mean is the higher one: what the paper's "27 of 30" counts."""
        pairs = zip(self.ours, self.theirs, strict=True)
        return sum(bool(x.mean() > y.mean()) for x, y in pairs)

    def to_json(self) -> dict[str, Any]:
        """All numbers, in values that JSON can hold."""
        each = zip(self.matches, self.ours, self.theirs, strict=True)
        matches: list[dict[str, Any]] = [
            {"name": one.name, "settings": [one.ours.label, one.theirs.label],
             "ours": x.tolist(), "theirs": y.tolist()}
            for one, x, y in each
        ]  # fmt: skip
        whole: dict[str, Any] = {}
        for kind, found in {"": self.over_seeds, "_over_worlds": self.over_worlds}.items():
            if found is None:
                continue
            gains = [*found.differences, found.difference]
            chances = [*found.chances, found.chance]
            for one, gain, chance in zip([*matches, whole], gains, chances, strict=True):
                one |= {f"difference{kind}": _ends(gain), f"probability{kind}": _ends(chance)}
        head = {"mode": self.mode, "measure": self.measure, "matches": matches}
        return {**head, **whole, "wins": self.wins}


def _ends(one: Interval | None) -> dict[str, float | None] | None:
    """An interval for JSON, which has no nan: null where one score has no interval."""
    if one is None:
        return None
    return {name: None if math.isnan(value) else value for name, value in asdict(one).items()}


@dataclass(frozen=True, eq=False)
class Compared:
    """Two sides over tasks, seeds and modes."""

    comparisons: tuple[Comparison, ...]
    """One per mode."""
    names: tuple[str, str]
    """What columns call the two sides."""
    notes: tuple[str, ...]
    """Everything to know before quoting a number."""
    brief_notes: tuple[str, ...]
    """What is missing or damaged, and how many other notes there are."""

    def table(self, verbose: bool = True) -> Table:
        """For each mode a row per match, and a last one over all; `verbose`: all columns."""
        rows = [row for comparison in self.comparisons for row in _rows(comparison, *self.names)]
        if not verbose:
            rows = [{k: v for k, v in r.items() if k != "seeds" and k[:2] != "P("} for r in rows]
        return Table.of("comparison", rows)

    def to_json(self) -> list[dict[str, Any]]:
        """All numbers, in values that JSON can hold."""
        return [one.to_json() for one in self.comparisons]


def compare(
    a: str,
    b: str,
    *,
    runs: str | Path = "runs",
    modes: Sequence[str] = (),
    measure: Measure = "return",
) -> Compared:
    """Two methods over tasks and seeds: their difference, and how likely one is better.

    Args:
        a: one side: a folder of runs, or an agent of the zoo, `zoo:NAME`; or a method (`svea`),
            with its augmentation (`svea+conv`), or a setting as `svea eval` prints it.
        b: the other side, named in the same ways.
        runs: where names are looked for.
        modes: which modes or groups of modes; default all that both have.
        measure: final return, area under the evaluation curve (sample efficiency), or success.

    Example:
        >>> found = compare("svea", "drq", runs="runs", modes=["color_hard"])  # doctest: +SKIP
        >>> found.comparisons[0].shown.difference  # doctest: +SKIP
    """
    beneath = Path(runs)
    (ours, unread_a), (theirs, unread_b) = (find_side(one, beneath) for one in (a, b))
    pairs, alone = matches(ours, theirs, (a, b))
    amiss = [
        f"{pair.name}: both sides have the same runs"
        for pair in pairs
        if {run.folder.resolve() for run in pair.ours.runs}
        & {run.folder.resolve() for run in pair.theirs.runs}
    ]
    amiss += [*unread_a, *unread_b, *alone]
    names = ("A", "B") if max(len(a), len(b)) > LONGEST_NAME else (a, b)
    shown = _spelled_out(modes, pairs)
    found = {mode: compare_in(pairs, mode, measure) for mode in shown}
    made = tuple(filter(None, found.values()))
    heads = [] if names[0] == a else [f"A: {a}; B: {b}"]
    lacking = (mode for mode in shown if found[mode] is None)
    heads += [f"{mode}: no {measure} on both sides of any task" for mode in lacking]
    groups = [pair.ours for pair in pairs] + [pair.theirs for pair in pairs]
    about = () if measure == "area" else shown
    every, warnings = (
        list(dict.fromkeys([*amiss, *caveat_notes(groups, about, only)])) for only in (False, True)
    )
    if not made:
        cure = "no mode was played on both sides; `svea eval` plays what is missing"
        raise UserError("\n".join(["nothing to compare:", cure, *heads, *warnings]))
    wins = [f"{c.mode}: {names[0]} is better in {c.wins} of {len(c.matches)}" for c in made]
    over, *seeds = _about_intervals(made)
    more = plural(len(wins) + len(seeds) + len(every) - len(warnings), "note")
    short = f"{over}. More columns and {more}: --verbose"
    return Compared(
        made,
        names,
        (*heads, *wins, over, *seeds, *(f"note: {text}" for text in every)),
        (*heads, short, *(f"note: {text}" for text in warnings)),
    )


def find_side(text: str, beneath: Path) -> tuple[list[Group], list[str]]:
    """The groups that a user means by a side of `compare`, and what could not be read."""
    is_folder = Path(text).exists() or zoo.is_name(text)
    if not is_folder and not beneath.is_dir():
        raise UserError(
            f"{text!r} is not a folder, and neither is {str(beneath)!r}, where names are looked "
            "up; give a folder of runs, or --runs"
        )
    runs, problems = read_runs([Path(text) if is_folder else beneath])
    groups = group_runs(runs)
    if is_folder:
        return groups, problems
    names = {
        g: (g.label,) if g.runs[0].trained_in  # only by its whole name: it is not zero-shot
        else (g.method, f"{g.method}+{g.runs[0].augment}", g.label)
        for g in groups
    }  # fmt: skip
    found = [g for g in groups if _plain(text) in map(_plain, names[g])]
    if not found:
        allowed = {name for known in names.values() for name in known[:2]}
        error = unknown_name("method or folder", text, allowed)
        raise UserError(f"{error} (the runs in {beneath}), or any folder of runs")
    return found, problems


def _plain(name: str) -> str:
    """A name however it was typed: `svea+overlay-drift` is `svea + overlay_drift`."""
    return name.replace(" ", "").replace("-", "_")


def matches(
    ours: Sequence[Group], theirs: Sequence[Group], names: tuple[str, str] = ("", "")
) -> tuple[list[Match], list[str]]:
    """Pair the groups of two sides, and name what has no partner.

    `names` are what the user called the sides. Where augmentations do not pair, `drq` is the
    setting with just that label, and not `drq + conv`, too.
    """
    by_augment = all(len({g.runs[0].augment for g in side}) > 1 for side in (ours, theirs))

    def by_name(side: Sequence[Group], typed: str) -> dict[str, Group]:
        exact = [] if by_augment else [g for g in side if _plain(g.label) == _plain(typed)]
        named: dict[str, Group] = {}
        for group in exact or side:
            name = f"{group.task} {group.runs[0].augment}" if by_augment else group.task
            if (other := named.setdefault(name, group)) is not group:
                raise UserError(
                    f"several settings of {typed!r} on {name}: {other.label!r} or {group.label!r}; "
                    "name one of them so (--runs says where names are looked for), or give a "
                    "folder that holds one"
                )
        return named

    a, b = by_name(ours, names[0]), by_name(theirs, names[1])
    alone = [f"{name}: only on one side, left out" for name in sorted(a.keys() ^ b.keys())]
    both = [Match(name, a[name], b[name]) for name in a if name in b]
    if not both:
        raise UserError(
            f"nothing to compare: one side has {', '.join(a)}; the other {', '.join(b)}"
        )
    return both, alone


def compare_in(pairs: Sequence[Match], mode: str, measure: Measure) -> Comparison | None:
    """Compare two sides in a mode; None where no match has scores on both sides."""
    scored = [(pair, _scores(pair, mode, measure)) for pair in pairs]
    scored = [(pair, sides) for pair, sides in scored if all(map(len, sides))]
    if not scored:
        return None
    competing, by_match = zip(*scored, strict=True)
    ours, theirs = zip(*by_match, strict=True)
    one_scale = measure == "success" or len({suite(pair.ours.task) for pair in competing}) == 1
    over_seeds, over_worlds = Intervals.of(ours, theirs, one_scale), None
    if measure != "area":
        x, y = zip(*(_by_world(pair, mode, measure) for pair in competing), strict=True)
        over_worlds = Intervals.of(x, y, one_scale)
    return Comparison(mode, measure, competing, ours, theirs, over_seeds, over_worlds)


def _by_world(pair: Match, mode: str, measure: str) -> Iterator[stats.SeedsAndWorlds]:
    """The episodes of each side by seed and world, with the worlds of both."""
    sides = [[r.final_by_world(mode, measure) for r in g.runs] for g in (pair.ours, pair.theirs)]
    return itertools.starmap(stats.SeedsAndWorlds.of, (sides, sides[::-1]))


def _scores(pair: Match, mode: str, measure: Measure) -> list[NDArray[np.float64]]:
    """A score per seed of each side; areas of both sides end at the same decision."""
    sides = pair.ours.runs, pair.theirs.runs
    if measure == "area":
        return [areas(runs, mode, beside=[*sides[0], *sides[1]]) for runs in sides]
    return [stats.seed_scores([run.finals(mode, measure) for run in runs]) for runs in sides]


def _about_intervals(made: Sequence[Comparison]) -> list[str]:
    if made[0].over_worlds is None:
        return ["[95 %]: bootstrap intervals over seeds"]
    over = ["[95 %]: bootstrap intervals over seeds and worlds (train: seeds and episodes)"]
    if any(any(found.single_pairs) for found in made):
        over.append(
            "where both sides have one seed, the interval of the difference is over worlds "
            "(train: episodes) alone and P has none: nothing is known of other seeds"
        )
    return over


def _spelled_out(modes: Sequence[str], pairs: Sequence[Match]) -> list[str]:
    """The modes that are asked for; of a group, and by default, those that any match has twice."""
    common = in_order(m for pair in pairs for m in pair.ours.modes if m in pair.theirs.modes)
    asked: list[str] = []
    for mode in modes:
        members = [one for one in expand_modes([mode]) if one in common] if mode in GROUPS else []
        asked += members or [mode]
    return list(dict.fromkeys(asked)) if modes else shown_modes(common, None)


def _rows(found: Comparison, ours: str, theirs: str) -> Iterator[dict[str, Cell]]:
    """The rows of one mode: a row for each match, and one over all where there are several."""
    form, shown, alone = show(found.measure), found.shown, found.single_pairs
    names = [match.name for match in found.matches]
    scores = found.ours, found.theirs
    sides = [[float(x.mean()) for x in side] for side in scores]
    seeds = [[x.size for x in side] for side in scores]
    gains, chances = list[Interval | None](shown.differences), list(shown.chances)
    if len(names) > 1:
        has_scale = shown.difference is not None  # returns of several suites have no common one
        names.append(f"all {len(names)}")
        sides = [[*side, float(np.mean(side)) if has_scale else math.nan] for side in sides]
        seeds = [[*side, sum(side)] for side in seeds]
        gains, chances = [*gains, shown.difference], [*chances, shown.chance]
        alone = (*alone, any(alone))
    each = zip(names, *sides, *seeds, gains, chances, alone, strict=True)
    for name, a, b, n, m, gain, chance, is_single in each:
        # Over worlds alone, ends would make one pair of seeds look certain.
        certain = replace(chance, low=math.nan, high=math.nan) if is_single else chance
        yield {
            "task": Cell(name),
            "mode": Cell(found.mode),
            f"{found.measure} of {ours}": Cell(form(a), value=a),
            f"of {theirs}": Cell(form(b), value=b),
            "seeds": Cell(f"{n}, {m}"),
            "difference [95 %]": estimate(gain, form) if gain else Cell("–"),
            f"P({ours} > {theirs}) [95 %]": estimate(certain, rate),
        }
