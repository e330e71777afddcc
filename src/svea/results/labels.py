"""Labels of groups: the method, then as few settings as tell a group from the others."""

from __future__ import annotations

from collections.abc import Sequence

from svea.methods import METHODS
from svea.results.settings import PARTS

Settings = dict[str, str]

TASK_DECIDES = {"task", "action_repeat", "episode_frames", "recipe.alpha", "recipe.beta",
                "sgqn.quantile"}  # fmt: skip
"""Settings whose usual value depends on the task: across tasks they tell nothing apart."""

FIRST_TO_TELL = ("preset", "auxiliary", "decisions")
"""Settings that tell groups apart best, because a reader chose them; all others come after."""


def method_label(method: str, augment: str, encoder: str, base: str, mask: str = "none") -> str:
    """What every label begins with; encoder and base where they are not the paper's first ones.

    >>> method_label("svea", "conv", "cnn", "sac"), method_label("drq", "none", "vit", "ddpg")
    ('svea + conv', 'drq (vit, ddpg)')
    >>> method_label("drq", "none", "cnn", "sac", mask="madi")
    'drq (mask madi)'
    """
    strong = f" + {augment}" if augment != "none" else ""
    other = [name for name in (encoder, base) if name not in ("cnn", "sac")]
    usual = METHODS[method].mask if method in METHODS else "none"
    other += [f"mask {mask}"] if mask != usual else []
    return method + strong + (f" ({', '.join(other)})" if other else "")


def labels(base: str, settings: Sequence[Settings]) -> list[tuple[str, tuple[str, ...]]]:
    """For each group of one method its label, and the settings that differ but are not named.

    A label is the method's and then as few settings as tell the group from all others. Groups
    of several tasks with the same settings have the same label, and no others have.

    Args:
        base: What every label begins with.
        settings: Of each group.
    """
    settings = _across_tasks(settings)
    named = _tell_apart(settings)
    found = []
    for own, names in zip(settings, named, strict=True):
        alike = [n for n, other in enumerate(settings) if other.get("preset") == own.get("preset")]
        said = {name for n in alike for name in named[n]}
        rest = set(_differing([settings[n] for n in alike])) - said
        unsaid = sorted(name for name in rest if PARTS.get(name.partition(".")[0]) not in said)
        words = [f"{name} {own.get(name, 'unset')}" for name in names]
        found.append((", ".join([base, *words]), tuple(unsaid)))
    return found


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
