"""`svea compare`: two methods over tasks and seeds."""

from __future__ import annotations

import json as jsonlib
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from svea.cli.arguments import Positional, parse
from svea.cli.terminal import print_findings
from svea.errors import UserError
from svea.evidence import compare, stats
from svea.evidence.results import caveats
from svea.words import number

BOOTSTRAP_SEED = 0
LONGEST_NAME = 16  # in the head of a column

Rows = list[dict[str, Any]]


def run(arguments: list[str]) -> int:
    """Read the arguments and run the verb."""

    def command(
        a: Positional[str],
        b: Positional[str],
        runs: Path = Path("runs"),
        modes: tuple[str, ...] = (),
        measure: Literal["return", "area", "success"] = "return",
        json: bool = False,
    ) -> int:
        """Probability of improvement and difference, with 95 % bootstrap intervals.

        Args:
            a: one side: a folder of runs; or a method (svea), with its augmentation (svea+conv), or
                a setting as `svea eval` prints it, among the runs in --runs.
            b: the other side, named in the same ways.
            runs: where names are looked for.
            modes: which modes; default all that both have.
            measure: final return, area under the evaluation curve (sample efficiency), or success.
            json: print JSON instead of a table.
        """
        made, notes = comparisons(a, b, runs, modes, measure)
        if json:
            print(jsonlib.dumps([one.to_json() for one in made], indent=1))
            return 0
        rows = [row for one in made for row in comparison_rows(one, a, b)]
        return print_findings(rows, notes)

    return parse(command, "compare", arguments)


def comparisons(
    ours: str,
    theirs: str,
    beneath: Path,
    modes: Sequence[str],
    measure: compare.Measure,
) -> tuple[list[compare.Comparison], list[str]]:
    """`svea compare`: one comparison per mode (all that both have if none is named), and notes."""
    (a, unread_a), (b, unread_b) = (compare.find_side(one, beneath) for one in (ours, theirs))
    pairs, alone = compare.matches(a, b)
    groups = [group for pair in pairs for group in (pair.ours, pair.theirs)]
    told = (text for group in groups for text in caveats(group))
    a_name, _ = _side_names(ours, theirs)
    sides = [] if a_name == ours else [f"A: {ours}; B: {theirs}"]
    notes = list(dict.fromkeys([*sides, *unread_a, *unread_b, *alone, *told]))
    generator = np.random.default_rng(BOOTSTRAP_SEED)
    made = []
    for mode in modes or _common_modes(pairs):
        found = compare.compare(pairs, mode, measure, generator)
        if found is None:
            notes.append(f"{mode}: no {measure} on both sides of any task")
            continue
        made.append(found)
        notes.append(f"{mode}: {a_name} is better in {found.wins} of {len(found.names)}")
    if not made:
        raise UserError("nothing to compare:\n" + "\n".join(notes))
    return made, notes


def _side_names(ours: str, theirs: str) -> tuple[str, str]:
    """What the columns call the two sides."""
    return ("A", "B") if max(len(ours), len(theirs)) > LONGEST_NAME else (ours, theirs)


def _common_modes(pairs: Sequence[compare.Match]) -> list[str]:
    """Modes that any match has on both sides."""
    return list(
        dict.fromkeys(m for pair in pairs for m in pair.ours.modes if m in pair.theirs.modes)
    )


def comparison_rows(found: compare.Comparison, ours: str, theirs: str) -> Rows:
    """A row per match, and the last one over all; long names of the sides are shown as A and B."""
    ours, theirs = _side_names(ours, theirs)

    def row(
        name: str,
        a: float,
        b: float,
        seeds: str,
        gain: stats.Interval | None,
        chance: stats.Interval,
    ) -> dict[str, Any]:
        return {
            "task": name,
            "mode": found.mode,
            f"{found.measure} of {ours}": number(a),
            f"of {theirs}": number(b),
            "seeds": seeds,
            "difference [95 %]": _interval(gain, number) if gain else "–",
            f"P({ours} > {theirs}) [95 %]": _interval(chance, lambda value: f"{value:.2f}"),
        }

    each = zip(found.names, found.ours, found.theirs, found.differences, found.chances, strict=True)
    rows = [
        row(name, x.mean(), y.mean(), f"{x.size}, {y.size}", gain, chance)
        for name, x, y, gain, chance in each
    ]
    if len(rows) > 1:
        a, b = (float(np.mean([x.mean() for x in side])) for side in (found.ours, found.theirs))
        if found.difference is None:  # returns of several suites have no common scale
            a = b = math.nan
        n, m = (sum(x.size for x in side) for side in (found.ours, found.theirs))
        rows.append(row(f"all {len(rows)}", a, b, f"{n}, {m}", found.difference, found.chance))
    return rows


def _interval(one: stats.Interval, show: Callable[[float], str]) -> str:
    """A value with the ends of its interval."""
    return f"{show(one.point)} [{show(one.low)}, {show(one.high)}]"
