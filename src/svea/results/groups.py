"""Groups: runs that differ in nothing but their seed, what tells them apart, and their caveats."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from svea import envs
from svea.config import Role, fields_with, flat, resolve, to_dict
from svea.config.modes import in_order, modes_of
from svea.core.errors import UserError
from svea.core.importing import is_import_path
from svea.core.words import listed, plural
from svea.evaluation.episodes import USUAL
from svea.methods import METHODS
from svea.results import published
from svea.results.read import Run
from svea.runs.records import MADE_WITH, made_with, told_apart

SETTINGS = fields_with(Role.WHAT, Role.LENGTH) - {"eval_mode"}
"""Fields of a configuration that say what is learned, not which seed, where or how watched."""

MACHINE = frozenset({"overlay_dir", "precision"})
"""Settings that the machine decides; the paper's are not known."""

PARTS = {"sac": "base", "ddpg": "base", "dqn": "base",
         "curl": "auxiliary", "soda": "auxiliary", "pad": "auxiliary", "sgqn": "auxiliary",
         "madi": "mask"}  # fmt: skip
"""Tables of a configuration that count only where this field names them."""

TASK_DECIDES = {"task", "action_repeat", "episode_frames", "recipe.alpha", "recipe.beta",
                "sgqn.quantile"}  # fmt: skip
"""Settings whose usual value depends on the task: across tasks they tell nothing apart."""

FIRST_TO_TELL = ("preset", "auxiliary", "decisions")
"""Settings that tell groups apart best, because a reader chose them; all others come after."""

PLACES, SMALLEST_PLACES = "places365_standard", 36_500
"""Where overlay's pictures lie in the paper's data set, and how many its smaller part has."""

TEST_MODE = "color_hard"
"""The test mode that cards and headlines show where there is a choice."""

Settings = dict[str, str]


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
    def name(self) -> str:
        """Task and label: no other group has both."""
        return f"{self.task} · {self.label}"

    @property
    def modes(self) -> list[str]:
        """Modes that any run was evaluated in, in the order of tables."""
        return in_order(mode for run in self.runs for mode in run.modes)

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
        if pictures := other_pictures(run):
            found.append(pictures)
        if self.task in envs.ROBOT_TASKS:
            found.append("a robot task of our own (the paper's were never released)")
        if not found and (changed := changed_settings(run)):
            found.append(f"other settings ({listed(changed)})")
        return tuple(found)


def group_runs(runs: Sequence[Run]) -> list[Group]:
    """Groups of runs that differ in nothing but their seed, by task and then label."""
    seeds: dict[str, list[Run]] = {}
    for run in runs:
        key = json.dumps([run.task, method_label(run), settings_of(run)], sort_keys=True)
        seeds.setdefault(key, []).append(run)
    alike: dict[str, list[list[Run]]] = {}  # groups of one method
    for members in seeds.values():
        members.sort(key=lambda run: (run.seed is None, run.seed or 0, run.name))
        alike.setdefault(method_label(members[0]), []).append(members)
    groups = [group for label, several in alike.items() for group in _labelled(label, several)]
    return sorted(groups, key=lambda group: (group.task, group.label))


def suite(task: str) -> str:
    """The tasks whose returns have one scale; a user's own task stands for itself.

    >>> suite("walker_walk"), suite("robot_push"), suite("my_package:make_env")
    ('DMControl', 'robot', 'my_package:make_env')
    """
    if task in envs.ROBOT_TASKS:
        return "robot"
    return "DMControl" if task in envs.TASKS else task


# Settings -----------------------------------------------------------------------------------------


def settings_of(run: Run) -> Settings:
    """Every setting that changes what is learned, under its dotted name."""
    unused = {part for part, field in PARTS.items() if getattr(run, field) != part}
    counting = {k: v for k, v in run.config.items() if k in SETTINGS - unused}
    settings = {name: str(value) for name, value in flat(counting).items()}
    own = {"method": run.method, "augment": run.augment}  # one spelling of each
    settings |= {name: value for name, value in own.items() if name in settings}
    if pictures := run.pictures:  # where they lay does not matter then
        settings.pop("overlay_dir", None)
        source, digest = pictures.get("source"), str(pictures.get("sha256"))[:8]
        count, side = pictures.get("count"), pictures.get("side")
        settings["pictures"] = f"{count} of {source} at {side} px ({digest})"
    return settings


def other_pictures(run: Run) -> str:
    """How the pictures of a run's overlay differ from the paper's, Places365; empty if not."""
    pictures = run.pictures
    if pictures is None:
        return ""
    if not pictures:
        return "overlay pictures not recorded"
    source, of = str(pictures.get("source")), pictures.get("of")
    if not source.startswith(PLACES):
        return f"overlay pictures not Places365 ({source})"
    if not isinstance(of, int) or of < SMALLEST_PLACES:
        return f"only {of} files of Places365 for overlay"
    since = pictures.get("since")
    return f"overlay pictures not recorded before decision {since:,}" if since else ""


def changed_settings(run: Run) -> list[str]:
    """Settings that differ from the paper's for a run's task, method, augmentation and encoder."""
    if is_import_path(run.method):  # a user's own, whose module is not needed to read its results
        return ["method"]
    try:
        paper = _paper_settings(run.task, run.method, run.augment, run.encoder)
    except UserError:  # a damaged record, or a method of this version no longer
        return ["method"]
    own = settings_of(run)
    compared = fields_with(Role.WHAT) - MACHINE
    return sorted(
        name
        for name in own.keys() & paper.keys()
        if name.partition(".")[0] in compared and own[name] != paper[name]
    )


@lru_cache
def _paper_settings(task: str, method: str, augment: str, encoder: str) -> Settings:
    """The settings of preset `paper`."""
    config = to_dict(resolve(task, method=method, augment=augment, encoder=encoder))
    return settings_of(Run(Path(), config, [], []))


# Labels -------------------------------------------------------------------------------------------


def method_label(run: Run) -> str:
    """What every label begins with: encoder and base where they are not the paper's first ones."""
    strong = f" + {run.augment}" if run.augment != "none" else ""
    other = [name for name in (run.encoder, run.base) if name not in ("cnn", "sac")]
    usual = METHODS[run.method].mask if run.method in METHODS else "none"
    other += [f"mask {run.mask}"] if run.mask != usual else []
    return run.method + strong + (f" ({', '.join(other)})" if other else "")


def _labelled(method: str, several: Sequence[list[Run]]) -> list[Group]:
    """The groups of one method under labels that tell them apart, with as few settings as do.

    Groups of several tasks with the same settings have the same label, and no others have.
    """
    settings = _across_tasks([settings_of(members[0]) for members in several])
    named = _tell_apart(settings)
    groups = []
    for members, own, names in zip(several, settings, named, strict=True):
        alike = [n for n, other in enumerate(settings) if other.get("preset") == own.get("preset")]
        said = {name for n in alike for name in named[n]}
        rest = set(_differing([settings[n] for n in alike])) - said
        unsaid = sorted(name for name in rest if PARTS.get(name.partition(".")[0]) not in said)
        words = [f"{name} {own.get(name, 'unset')}" for name in names]
        groups.append(Group(tuple(members), ", ".join([method, *words]), tuple(unsaid)))
    return groups


def _across_tasks(settings: Sequence[Settings]) -> list[Settings]:
    """Settings without those that the task decides, as far as they are the same within each."""
    by_task: dict[str | None, list[Settings]] = {}
    for own in settings:
        by_task.setdefault(own.get("task"), []).append(own)
    varied = {name for members in by_task.values() for name in _differing(members)}
    dropped = TASK_DECIDES - varied
    return [{k: v for k, v in own.items() if k not in dropped} for own in settings]


def _tell_apart(settings: Sequence[Settings]) -> list[list[str]]:
    """For each, the names of the settings that tell it from the others, best ones first."""
    names = _differing(settings)
    if not names:
        return [[] for _ in settings]
    name = min(names, key=lambda candidate: _rank(candidate, settings))
    chosen: list[list[str]] = [[] for _ in settings]
    for value in {own.get(name) for own in settings}:
        same = [n for n, own in enumerate(settings) if own.get(name) == value]
        for n, rest in zip(same, _tell_apart([settings[n] for n in same]), strict=True):
            chosen[n] = [name, *rest]
    return chosen


def _rank(name: str, settings: Sequence[Settings]) -> tuple[int, int, str]:
    """The order of settings that tell groups apart: chosen ones, then those with most values."""
    known = FIRST_TO_TELL.index(name) if name in FIRST_TO_TELL else len(FIRST_TO_TELL)
    return known, -len({own.get(name) for own in settings}), name


def _differing(settings: Sequence[Settings]) -> list[str]:
    """Names of settings that are not the same everywhere."""
    names = {name for own in settings for name in own}
    return [name for name in names if len({own.get(name) for own in settings}) > 1]


# Caveats ------------------------------------------------------------------------------------------

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
