"""Groups: runs that differ in nothing but their seed, what tells them apart, and their caveats."""

import json
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np

from svea import envs
from svea.config import Role, fields_with, flat, resolve, to_dict
from svea.config.modes import in_order, is_factor
from svea.core.errors import UserError
from svea.core.importing import is_import_path
from svea.core.words import listed, plural
from svea.data.clips import PROCEDURAL
from svea.evaluation import USUAL
from svea.methods import METHODS
from svea.results import published, stats
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

    @cached_property
    def modes(self) -> list[str]:
        """Modes that any run was evaluated in, in the order of tables."""
        return in_order(mode for run in self.runs for mode in run.modes)

    @property
    def test_mode(self) -> str | None:
        """The test mode to show first."""
        tests = [mode for mode in self.modes if mode != "train" and not is_factor(mode)]
        return TEST_MODE if TEST_MODE in tests else next(iter(tests), None)

    def by_world(self, mode: str, unit: str = "return") -> stats.SeedsAndWorlds:
        """The final episodes of all runs in a mode: what intervals are drawn from."""
        return stats.SeedsAndWorlds.of([run.final_by_world(mode, unit) for run in self.runs])

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
        if run.trained_in:
            found.append(f"trained in {run.trained_in}")
        if pictures := other_pictures(run):
            found.append(pictures)
        if self.task in envs.ROBOT_TASKS:
            found.append("a robot task of our own (the paper's were never released)")
        if not found and (changed := changed_settings(run)):
            found.append(f"other settings ({listed(changed)})")
        return tuple(found)


def suite(task: str) -> str:
    """The tasks whose returns have one scale; a user's own task stands for itself.

    >>> suite("walker_walk"), suite("robot_push"), suite("my_package:make_env")
    ('DMControl', 'robot', 'my_package:make_env')
    """
    if task in envs.ROBOT_TASKS:
        return "robot"
    return "DMControl" if task in envs.TASKS else task


def group_runs(runs: Sequence[Run]) -> list[Group]:
    """Groups of runs that differ in nothing but their seed, by task and then label."""
    alike: dict[str, dict[str, list[Run]]] = {}  # by method, then by task and settings
    for run in sorted(runs, key=lambda run: (run.seed is None, run.seed or 0, run.name)):
        key = json.dumps([run.task, settings_of(run)], sort_keys=True)
        alike.setdefault(method_label(run), {}).setdefault(key, []).append(run)
    groups = [one for label, own in alike.items() for one in _labelled(label, [*own.values()])]
    return sorted(groups, key=lambda group: (group.task, group.label))


def method_label(run: Run) -> str:
    """What every label begins with: encoder and base where they are not the paper's first ones."""
    strong = f" + {run.augment}" if run.augment != "none" else ""
    other = [name for name in (run.encoder, run.base) if name not in ("cnn", "sac")]
    usual = METHODS[run.method].mask if run.method in METHODS else "none"
    other += [f"mask {run.mask}"] if run.mask != usual else []
    other += [f"TRAINED IN {run.trained_in}"] if run.trained_in else []
    return run.method + strong + (f" ({', '.join(other)})" if other else "")


def _labelled(method: str, several: Sequence[list[Run]]) -> list[Group]:
    """The groups of one method under labels with as few settings as tell them apart.

    Groups of several tasks with the same settings have the same label, and no others have.
    """
    settings = [settings_of(runs[0]) for runs in several]
    tasks = [runs[0].task for runs in several]
    for name in TASK_DECIDES:
        by_task = {(task, own.get(name)) for task, own in zip(tasks, settings, strict=True)}
        if len(by_task) == len(set(tasks)):  # one value for each task
            settings = [{k: v for k, v in own.items() if k != name} for own in settings]
    chosen: list[str] = []
    for name in _differing(settings):
        if len(_values(settings, [*chosen, name])) > len(_values(settings, chosen)):
            chosen.append(name)
    groups = []
    for runs, own in zip(several, settings, strict=True):
        words, left = [method], settings
        for name in chosen:
            if len(_values(left, [name])) > 1:
                words.append(f"{name} {own.get(name, 'unset')}")
            left = [other for other in left if other.get(name) == own.get(name)]
        alike = [other for other in settings if other.get("preset") == own.get("preset")]
        unsaid = [
            name
            for name in sorted(_differing(alike))
            if name not in chosen and PARTS.get(name.partition(".")[0]) not in chosen
        ]
        groups.append(Group(tuple(runs), ", ".join(words), tuple(unsaid)))
    return groups


def _differing(settings: Sequence[Settings]) -> list[str]:
    """The settings that differ: those of `FIRST_TO_TELL`, then those with most values."""
    values = {name: len(_values(settings, [name])) for name in {*FIRST_TO_TELL}.union(*settings)}
    order = [*FIRST_TO_TELL, *sorted(values, key=lambda name: (-values[name], name))]
    return [name for name in dict.fromkeys(order) if values[name] > 1]


def _values(settings: Sequence[Settings], names: Sequence[str]) -> set[tuple[str | None, ...]]:
    """The combinations of values that some names have."""
    return {tuple(own.get(name) for name in names) for own in settings}


# Settings -----------------------------------------------------------------------------------------


def settings_of(run: Run) -> Settings:
    """Every setting that changes what is learned, under its dotted name."""
    unused = {part for part, field in PARTS.items() if getattr(run, field) != part}
    counting = {k: v for k, v in run.config.items() if k in SETTINGS - unused}
    settings = {name: str(value) for name, value in flat(counting).items()}
    own = {"method": run.method, "augment": run.augment}  # one spelling of each
    settings |= {name: value for name, value in own.items() if name in settings}
    usual = {"train_mode": "train", "train_vary": ""}  # which older runs do not tell
    settings = {k: v for k, v in settings.items() if k not in usual or v != usual[k]}
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
    own, compared = settings_of(run), fields_with(Role.WHAT) - MACHINE
    changed = {name for name in own.keys() & paper.keys() if own[name] != paper[name]}
    return sorted(name for name in changed if name.partition(".")[0] in compared)


@lru_cache
def _paper_settings(task: str, method: str, augment: str, encoder: str) -> Settings:
    config = to_dict(resolve(task, method=method, augment=augment, encoder=encoder))
    return settings_of(Run(Path(), config, [], []))


# Caveats ------------------------------------------------------------------------------------------

Caveats = dict[str, list[str]]
"""Each sentence, with the settings or runs it is about; none where it is about all of them."""

FEW_EPISODES = 5
"""Fewer are few: a bootstrap interval of two episodes holds the mean in one case of two."""
GENERATED = {PROCEDURAL, "generated"}
"""Sources of pictures that are nobody's recordings."""


def all_caveats(
    groups: Sequence[Group], modes: Collection[str] | None = None, warnings_only: bool = False
) -> Caveats:
    """All caveats of groups and warnings about their runs, equal ones once.

    They are about the modes that are shown, all if None; `warnings_only`: what is missing, damaged
    or too few, not how settings differ from the paper.
    """
    about: Caveats = {}
    for group in groups:
        own = [] if warnings_only else caveats_of(group)
        for text in (*own, *seen_worlds(group), *few_episodes(group, modes)):
            about.setdefault(text, []).append(group.name)
    for task in dict.fromkeys(group.task for group in groups):
        beside = [group for group in groups if group.task == task]
        for text in differently_made([run for group in beside for run in group.runs], modes):
            about[text] = [group.name for group in beside]
    about = {text: [] if len(who) == len(groups) else who for text, who in about.items()}
    runs = [run for group in groups for run in group.runs]
    for run in runs:
        for text in run.warnings:
            about.setdefault(text, []).append(run.name)
    versions = {str(run.config.get("svea_version", "unknown")) for run in runs}
    if len(versions) > 1:
        about[f"runs of different versions of svea: {', '.join(sorted(versions))}"] = []
    return about


def caveat_notes(
    groups: Sequence[Group], modes: Collection[str] | None = None, warnings_only: bool = False
) -> list[str]:
    """All of them as lines below a table, each with what it is about."""
    found = all_caveats(groups, modes, warnings_only)
    return [
        f"{text} ({listed(who, most=3, between='; ')})" if who else text
        for text, who in found.items()
    ]


def caveats_of(group: Group) -> list[str]:
    """What a reader must know before comparing this group with anything."""
    run, found = group.runs[0], []
    if group.departures:
        found.append(f"not a replication: {', '.join(group.departures)}")
    elif len(group.runs) < published.SEEDS:
        found.append(f"few seeds: {len(group.runs)}")
    seeds = Counter(run.seed for run in group.runs)
    if repeated := sorted(str(seed) for seed, count in seeds.items() if count > 1):
        found.append(f"several runs have the same seed ({', '.join(repeated)}); each counts")
    if group.unsaid:
        unsaid = listed(group.unsaid)
        found.append(f"settings of these runs differ in more than their labels say: {unsaid}")
    if run.config.get("eval_actions") == "sampled":
        found.append("evaluations sample actions; the paper takes the policy's most likely one")
    sources = {mode: told.get("source") for mode, told in run.provenance.items()}
    generated = [m for m, source in sources.items() if source in GENERATED and not is_factor(m)]
    if generated:
        found.append(f"{', '.join(sorted(generated))}: generated data, not the benchmark's")
    return found + differently_made(group.runs)


def differently_made(runs: Sequence[Run], modes: Collection[str] | None = None) -> list[str]:
    """Sentences about what runs of a task do not share: renderers, versions, clips."""
    differ: dict[str, list[str]] = {}
    for mode in shown_modes(in_order(mode for run in runs for mode in run.modes), modes):
        made = [run.provenance[mode] for run in runs if mode in run.provenance]
        for name, several in MADE_WITH.items():
            if len(values := told_apart(name, (made_with(one, name) for one in made))) > 1:
                differ.setdefault(f"{several} differ: {'; '.join(values)}", []).append(mode)
        others = {r.get("drawn_by") for run in runs for r in run.final_episodes(mode)}
        for other in sorted(one for one in others if isinstance(one, str)):
            differ.setdefault(f"some episodes were drawn by {other}", []).append(mode)
    return [f"{text} ({', '.join(where)})" for text, where in differ.items()]


def seen_worlds(group: Group) -> list[str]:
    """A warning about an agent that was also trained in other worlds; or none."""
    seen = group.runs[0].trained_in
    alone = "not to be compared with agents that never saw a test world (zero-shot)"
    return [f"trained in {seen}: {alone}"] if seen else []


def few_episodes(group: Group, modes: Collection[str] | None = None) -> list[str]:
    """A sentence about modes with so few episodes that an interval says little; or none."""
    counts = {mode: _few_in(group, mode) for mode in shown_modes(group.modes, modes)}
    told = ", ".join(f"{few} in {mode}" for mode, few in counts.items() if few)
    what = "intervals of so few are too narrow, and one episode has none"
    cure = f"`svea eval --episodes {USUAL}` plays more"
    return [f"few episodes: {told}; {what}. {cure}"] if told else []


def shown_modes(found: Sequence[str], modes: Collection[str] | None) -> list[str]:
    """Those of `modes`, if they are given; else all but factors, whose values have no end."""
    return [m for m in found if (not is_factor(m) if modes is None else m in modes)]


def _few_in(group: Group, mode: str) -> str:
    """How many episodes of a mode are too few for an interval; empty where they are enough."""
    units = ("return", "success")
    scores = [[s for run in group.runs if (s := run.finals(mode, unit)).size] for unit in units]
    counts = [len(episodes) for episodes in scores[0]]
    if not counts:
        return ""
    if min(counts) < FEW_EPISODES:
        return f"{min(counts)} per seed" if len(counts) > 1 else str(min(counts))
    alike = any(seeds and not np.ptp(np.concatenate(seeds)) for seeds in scores)
    return f"{sum(counts)} with one outcome" if alike and sum(counts) < USUAL else ""
