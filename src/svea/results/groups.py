"""Groups: runs that differ in nothing but their seed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from svea import envs
from svea.config.modes import in_order
from svea.core.words import listed, plural
from svea.results import published
from svea.results.labels import labels, method_label
from svea.results.run import Run
from svea.results.settings import changed_settings, other_pictures, settings_of

TEST_MODE = "color_hard"
"""The test mode that cards and headlines show where there is a choice."""


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
    grouped: dict[str, list[Run]] = {}
    for run in runs:
        key = json.dumps([run.task, *_family(run), settings_of(run)], sort_keys=True)
        grouped.setdefault(key, []).append(run)
    families: dict[tuple[str, str, str, str, str], list[list[Run]]] = {}
    for members in grouped.values():
        members.sort(key=lambda run: (run.seed is None, run.seed or 0, run.name))
        families.setdefault(_family(members[0]), []).append(members)
    groups = []
    for family, alike in families.items():
        named = labels(method_label(*family), [settings_of(members[0]) for members in alike])
        for members, (label, unsaid) in zip(alike, named, strict=True):
            groups.append(Group(tuple(members), label, unsaid))
    return sorted(groups, key=lambda group: (group.task, group.label))


def suite(task: str) -> str:
    """The tasks whose returns have one scale; a user's own task stands for itself.

    >>> suite("walker_walk"), suite("robot_push"), suite("my_package:make_env")
    ('DMControl', 'robot', 'my_package:make_env')
    """
    if task in envs.ROBOT_TASKS:
        return "robot"
    return "DMControl" if task in envs.TASKS else task


def _family(run: Run) -> tuple[str, str, str, str, str]:
    """What the first part of a label is made of."""
    return run.method, run.augment, run.encoder, run.base, run.mask
