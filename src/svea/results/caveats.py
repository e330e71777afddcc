"""What a reader must know before comparing results with anything."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from svea.config.modes import in_order, modes_of
from svea.core.words import listed
from svea.evaluation.episodes import USUAL
from svea.results import published
from svea.results.groups import Group, other_pictures
from svea.results.run import Run
from svea.runs.records import MADE_WITH, made_with, told_apart

Caveats = dict[str, list[str]]
"""Each sentence, with the settings or runs it is about; none where it is about all of them."""

FEW_EPISODES = 5
"""Fewer are few: a bootstrap interval of two episodes holds the mean in one case of two."""
FEW_RUNS = 3  # more are not named in a command


def all_caveats(
    groups: Sequence[Group], modes: Collection[str] | None = None, warnings_only: bool = False
) -> Caveats:
    """All caveats of groups and warnings about their runs, equal ones once.

    Args:
        groups: those that are shown.
        modes: the modes that are shown; all if None.
        warnings_only: what is missing, damaged or too few; not how settings differ from the paper.
    """
    found: Caveats = {}
    for group in () if warnings_only else groups:
        for text in caveats_of(group):
            found.setdefault(text, []).append(group.name)
    for task in dict.fromkeys(group.task for group in groups):
        beside = [group for group in groups if group.task == task]
        for text in differently_made([run for group in beside for run in group.runs], modes):
            found[text] = [group.name for group in beside]
    for text, few in few_episodes(groups, modes).items():
        found[text] = [group.name for group in few]
    found = {text: [] if len(who) == len(groups) else who for text, who in found.items()}
    runs = [run for group in groups for run in group.runs]
    for run in runs:
        for text in run.warnings:
            found.setdefault(text, []).append(run.name)
    versions = {str(run.config.get("svea_version", "unknown")) for run in runs}
    if len(versions) > 1:
        found[f"runs of different versions of svea: {', '.join(sorted(versions))}"] = []
    return found


def caveat_notes(
    groups: Sequence[Group], modes: Collection[str] | None = None, warnings_only: bool = False
) -> list[str]:
    """All of them as lines below a table, each with what it is about."""
    found = all_caveats(groups, modes, warnings_only)
    about = {text: listed(who, most=3, between="; ") for text, who in found.items()}
    return [text + (f" ({who})" if who else "") for text, who in about.items()]


def caveats_of(group: Group) -> list[str]:
    """What a reader must know before comparing this group with anything."""
    found = []
    of_paper = group.task in published.TASKS
    seeds = Counter(run.seed for run in group.runs)
    if len(group.runs) < published.SEEDS:
        than = f" where the paper has {published.SEEDS}" if of_paper else ""
        found.append(f"few seeds: {len(group.runs)}{than}")
    if repeated := sorted(str(seed) for seed, count in seeds.items() if count > 1):
        found.append(f"several runs have the same seed ({', '.join(repeated)}); each counts")
    run = group.runs[0]
    if run.preset not in ("paper", "unknown"):
        is_not = ", not a replication" if of_paper else ""
        found.append(f"preset {run.preset!r}: a smaller setting than the paper's{is_not}")
    elif other := [d for d in group.departures if "decisions" in d or "settings" in d]:
        found.append(f"{', '.join(other)}: not the paper's, so not a replication")
    if pictures := other_pictures(run):
        found.append(f"{pictures}; the paper's are Places365")
    if group.unsaid:
        unsaid = listed(group.unsaid)
        found.append(f"settings of these runs differ in more than their labels say: {unsaid}")
    if run.config.get("eval_actions") == "sampled":
        found.append("evaluations sample actions; the paper takes the policy's most likely one")
    for what, modes in _generated(run).items():
        named = ", ".join(sorted(modes))
        found.append(f"{named}: procedural or generated data, not the benchmark's ({what})")
    return found + differently_made(group.runs)


def differently_made(runs: Sequence[Run], modes: Collection[str] | None = None) -> list[str]:
    """Sentences about what runs of a task do not share: renderers, versions, clips.

    Args:
        runs: whose results stand next to each other, or in one mean.
        modes: the modes that are shown; all if None.
    """
    differ: dict[str, list[str]] = {}
    for mode in in_order(
        mode for run in runs for mode in run.modes if modes is None or mode in modes
    ):
        made = [run.provenance()[mode] for run in runs if mode in run.provenance()]
        for name, several in MADE_WITH.items():
            if len(values := told_apart(name, (made_with(one, name) for one in made))) > 1:
                differ.setdefault(f"{several} differ: {'; '.join(values)}", []).append(mode)
        others = {r["drawn_by"] for run in runs for r in run.drawn_otherwise(mode)}
        for other in sorted(others):
            differ.setdefault(f"some episodes were drawn by {other}", []).append(mode)
    return [f"{text} ({', '.join(where)})" for text, where in differ.items()]


def few_episodes(
    groups: Sequence[Group], modes: Collection[str] | None = None
) -> dict[str, list[Group]]:
    """Sentences about modes with so few episodes that an interval says little, and whose they are.

    Args:
        groups: those that are shown.
        modes: the modes that are shown; all if None.
    """
    by_count: dict[str, list[Group]] = {}
    modes_in: dict[str, list[str]] = {}
    for group in groups:
        shown = [mode for mode in group.modes if modes is None or mode in modes]
        counts = {mode: few for mode in shown if (few := _few_in(group, mode))}
        if counts:
            told = ", ".join(f"{few} in {mode}" for mode, few in counts.items())
            by_count.setdefault(told, []).append(group)
            modes_in[told] = list(counts)
    return {
        f"few episodes: {told}; intervals of so few are too narrow, and one episode has none. "
        f"{_more_episodes(having, modes_in[told])}": having
        for told, having in by_count.items()
    }


def _few_in(group: Group, mode: str) -> str:
    """How many episodes of a mode are too few for an interval; empty where they are enough."""
    returns, successes = (
        [values for run in group.runs if (values := run.finals(mode, unit)).size]
        for unit in ("return", "success")
    )
    if not returns:
        return ""
    fewest, played = min(map(len, returns)), sum(map(len, returns))
    if fewest < FEW_EPISODES:
        return f"{fewest} per seed" if len(returns) > 1 else str(fewest)
    alike = any(scores and not np.ptp(np.concatenate(scores)) for scores in (returns, successes))
    return f"{played} with one outcome" if alike and played < USUAL else ""


def _more_episodes(groups: Sequence[Group], modes: Sequence[str]) -> str:
    """What plays more; a mode that is a user's own may be a task's name, which has another flag."""
    runs = [str(run.folder) for group in groups for run in group.runs]
    named = shlex.join(runs) if len(runs) <= FEW_RUNS else "RUNS"
    known = [mode for mode in modes if mode.partition(":")[0] in modes_of(None)]
    if not known:
        return "Give the command that played them with a larger --episodes"
    return f"More: `svea eval {named} --modes {shlex.join(known)} --episodes {USUAL}`"


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
