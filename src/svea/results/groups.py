"""Groups: runs that differ in nothing but their seed, and what tells groups apart."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

from svea import envs
from svea.config import Role, fields_with, flat, resolve, to_dict
from svea.config.modes import in_order
from svea.core.errors import UserError
from svea.core.importing import is_import_path
from svea.core.words import listed, plural
from svea.methods import METHODS
from svea.results import published
from svea.results.run import Run

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
