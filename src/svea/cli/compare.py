"""`svea compare`: two methods over tasks and seeds."""

from __future__ import annotations

import json as jsonlib
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from svea.cli.arguments import Positional, parse
from svea.cli.terminal import Steps, print_results
from svea.core.errors import UserError
from svea.core.words import plural
from svea.envs.modes import expand_modes, in_order, is_group
from svea.results import Group, caveat_notes, compare
from svea.results.tables.comparison import comparison_table
from svea.runs import zoo

LONGEST_NAME = 16  # in the head of a column


def run(arguments: list[str]) -> int:
    """Read the arguments and run the verb."""
    return parse(command, "compare", arguments)


def command(
    a: Positional[str],
    b: Positional[str],
    runs: Path = Path("runs"),
    modes: tuple[str, ...] = (),
    measure: Literal["return", "area", "success"] = "return",
    verbose: bool = False,
    json: bool = False,
) -> int:
    """Two methods: their difference and the probability that one is better, with 95 % intervals.

    Example: svea compare svea drq --modes color_hard

    Intervals are over seeds and worlds (areas: over seeds); JSON has both kinds.

    Args:
        a: one side: a folder of runs, or an agent of the zoo, zoo:NAME; or a method (svea), with
            its augmentation (svea+conv), or a setting as `svea eval` prints it, among the runs in
            --runs.
        b: the other side, named in the same ways.
        runs: where names are looked for.
        modes: which modes or groups of modes; default all that both have.
        measure: final return, area under the evaluation curve (sample efficiency), or success.
        verbose: also the probability and the seeds, and what to know before quoting any of it.
        json: print JSON instead of a table.
    """
    with Steps("comparisons") as steps:
        steps.doing("reading runs")
        made, names, notes = comparisons(a, b, runs, modes, measure, verbose)
    if json:
        print(jsonlib.dumps([one.to_json() for one in made], indent=1))
        return 0
    return print_results(comparison_table(made, *names, verbose=verbose), notes)


def comparisons(
    ours: str,
    theirs: str,
    beneath: Path,
    modes: Sequence[str],
    measure: compare.Measure,
    verbose: bool = True,
) -> tuple[list[compare.Comparison], tuple[str, str], list[str]]:
    """`svea compare`: one comparison per mode (all that both have if none is named).

    Without `verbose` the notes are about missing and damaged runs, and how many others there are.

    Returns:
        The comparisons, what columns call the two sides, and notes.
    """
    (a, unread_a), (b, unread_b) = (compare.find_side(one, beneath) for one in (ours, theirs))
    pairs, alone = compare.matches(a, b, (ours, theirs))
    same = [pair.name for pair in pairs if _folders(pair.ours) & _folders(pair.theirs)]
    twice = [f"{name}: both sides have the same runs" for name in same]
    a_name, b_name = _side_names(ours, theirs)
    sides = [pair.ours for pair in pairs], [pair.theirs for pair in pairs]
    notes = [] if a_name == ours else [f"A: {ours}; B: {theirs}"]
    shown = _spelled_out(modes, _common_modes(pairs))
    groups, about = [*sides[0], *sides[1]], () if measure == "area" else shown
    every = caveat_notes(groups, about)
    told = every if verbose else caveat_notes(groups, about, warnings_only=True)
    caveats = dict.fromkeys([*twice, *unread_a, *unread_b, *alone, *told])
    wins = []
    made = []
    for mode in shown:
        found = compare.compare(pairs, mode, measure)
        if found is None:
            notes.append(f"{mode}: no {measure} on both sides of any task")
            continue
        made.append(found)
        wins.append(f"{mode}: {a_name} is better in {found.wins} of {len(found.names)}")
    if not made:
        cure = [_evaluate_both((ours, theirs), beneath, modes)] if measure == "return" else []
        raise UserError("nothing to compare:\n" + "\n".join([*cure, *notes, *caveats]))
    over, *seeds = _about_intervals(made)
    more = plural(len([*wins, *seeds, *every]) - len(told), "note")
    notes += [*wins, over, *seeds] if verbose else [f"{over}. More columns and {more}: --verbose"]
    marked = _marked(a_name, sides[0]), _marked(b_name, sides[1])
    return made, marked, [*notes, *(f"note: {text}" for text in caveats)]


def _about_intervals(made: Sequence[compare.Comparison]) -> list[str]:
    """What the intervals of a table are over."""
    if made[0].over_worlds is None:
        return ["[95 %]: bootstrap intervals over seeds"]
    over = ["[95 %]: bootstrap intervals over seeds and worlds (train: seeds and episodes)"]
    if any(any(found.single_pairs) for found in made):
        over.append(
            "where both sides have one seed, the interval of the difference is over worlds "
            "(train: episodes) alone and P has none: nothing is known of other seeds"
        )
    return over


def _evaluate_both(sides: Sequence[str], beneath: Path, modes: Sequence[str]) -> str:
    """What to do where the sides were not played in a mode that both have."""
    named = [zoo.is_name(side) or Path(side).exists() for side in sides]
    runs = [side if is_one else str(beneath) for side, is_one in zip(sides, named, strict=True)]
    words = [*dict.fromkeys(runs), *(["--modes", *modes] if modes else [])]
    command = f"svea eval {shlex.join(words)}"
    return f"no mode was played on both sides; `{command}` plays what is missing"


def _marked(name: str, groups: Sequence[Group]) -> str:
    """A side's name; an upper bound is not one method among others."""
    bound = any(run.mask == "oracle" for group in groups for run in group.runs)
    return f"{name} [upper bound]" if bound else name


def _folders(group: Group) -> set[Path]:
    """Where the runs of a group lie."""
    return {run.folder.resolve() for run in group.runs}


def _side_names(ours: str, theirs: str) -> tuple[str, str]:
    """What the columns call the two sides."""
    return ("A", "B") if max(len(ours), len(theirs)) > LONGEST_NAME else (ours, theirs)


def _spelled_out(modes: Sequence[str], common: Sequence[str]) -> list[str]:
    """The modes that are asked for; of a group those that both sides have."""
    asked: list[str] = []
    for mode in modes:
        members = [one for one in expand_modes([mode]) if one in common] if is_group(mode) else []
        asked += members or [mode]
    return list(dict.fromkeys(asked)) if modes else list(common)


def _common_modes(pairs: Sequence[compare.Match]) -> list[str]:
    """Modes that any match has on both sides."""
    return in_order(m for pair in pairs for m in pair.ours.modes if m in pair.theirs.modes)
