"""The modes: what users type, and which tasks have which."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from svea.envs.looks import Mode
from svea.envs.looks.colors import COLOR_MODES, ColorMode
from svea.envs.looks.distracting import INTENSITIES, DistractingMode, check_intensity
from svea.envs.looks.videos import VIDEO_MODES, VideoMode
from svea.envs.robot.worlds import RobotMode, RobotTestMode, check_world
from svea.envs.tasks import ROBOT_TASKS, is_foreign
from svea.errors import UserError, unknown_name


def _train(*, data_dir: Path | None = None) -> Mode:
    """The look the agent is trained in; it needs no data."""
    return Mode("train")


MODES: dict[str, Callable[..., Mode]] = {
    "train": _train,
    **{name: functools.partial(ColorMode, name) for name in COLOR_MODES},
    **{name: functools.partial(VideoMode, name) for name in VIDEO_MODES},
    "distracting_cs": DistractingMode,
}
"""Mode name to a factory called with `data_dir=` (a folder or None) and the mode's own options."""

ROBOT_MODES: dict[str, Callable[..., Mode]] = {"train": RobotMode, "test": RobotTestMode}
"""The same for the robot tasks."""

# What may stand behind a mode's colon: the option, how to read and to check it, an example.
_BEHIND_COLON: dict[str, tuple[str, type, Callable[[Any], Any], str]] = {
    "distracting_cs": ("intensity", float, check_intensity, "distracting_cs:0.3"),
    "test": ("world", int, check_world, "test:7"),
}
_ALL = "all"
USUAL = "usual"
"""The modes that one looks at first: train, and color_hard or a robot's test."""


def modes_of(task: str | None) -> dict[str, Callable[..., Mode]]:
    """The modes that a task has; without a task, all there are."""
    if task is None:
        return MODES | ROBOT_MODES
    if is_foreign(task):
        return {"train": _train}
    return ROBOT_MODES if task in ROBOT_TASKS else MODES


def parse_mode(text: str, task: str | None = None) -> tuple[str, dict[str, Any]]:
    """Split what users type into the mode's name and its options.

    Args:
        text: A mode, perhaps with a value behind a colon.
        task: Refuse modes that this task does not have.

    >>> parse_mode("distracting_cs:0.3")
    ('distracting_cs', {'intensity': 0.3})
    >>> parse_mode("test:7")
    ('test', {'world': 7})
    >>> parse_mode("video_hard")
    ('video_hard', {})
    """
    name, colon, value = text.partition(":")
    fitting = modes_of(task)
    if name not in fitting:
        if name in modes_of(None):
            only = "only has mode 'train'" if len(fitting) == 1 else f"has {', '.join(fitting)}"
            raise UserError(f"mode {text!r} does not fit {task}, which {only}.")
        raise unknown_name("mode", text, fitting)
    if not colon:
        return name, {}
    if name not in _BEHIND_COLON:
        raise UserError(
            f"mode {text!r} has a value behind its colon, which only distracting_cs and test take."
        )
    option, kind, check, example = _BEHIND_COLON[name]
    try:
        number = kind(value)
    except ValueError:
        raise UserError(
            f"mode {text!r} has no {option} behind its colon; write {example}."
        ) from None
    return name, {option: check(number)}


def check_mode(text: str, task: str | None = None) -> None:
    """Refuse an unknown mode, one that the task does not have, or a value that it does not take."""
    parse_mode(text, task)


def expand_modes(modes: Iterable[str], task: str | None = None) -> list[str]:
    """Spell out `all` and `distracting_cs:all`, check every mode, and keep each once.

    Args:
        modes: What users type.
        task: Whose modes `all` is, and which must have the others; a task of the suite without it.

    >>> expand_modes(["train", "distracting_cs:all"])[:3]
    ['train', 'distracting_cs:0.025', 'distracting_cs:0.05']
    >>> expand_modes(["all"])
    ['train', 'color_easy', 'color_hard', 'video_easy', 'video_hard', 'distracting_cs']
    >>> expand_modes(["all"], "robot_push")
    ['train', 'test']
    """
    groups = {
        _ALL: list(MODES if task is None else modes_of(task)),
        f"distracting_cs:{_ALL}": [f"distracting_cs:{each:g}" for each in INTENSITIES],
    }
    expanded = [name for mode in modes for name in groups.get(mode, [mode])]
    for mode in expanded:
        check_mode(mode, task)
    return list(dict.fromkeys(expanded))


def modes_for(
    task: str, modes: Iterable[str], on_problem: Callable[[str, UserError], None]
) -> list[str]:
    """The modes of a task that a user means; `all` is different for a robot task.

    Args:
        task: whose modes.
        modes: as typed.
        on_problem: called with each mode that the task does not have.
    """
    found: list[str] = []
    for mode in modes:
        if mode == USUAL:
            shown = ("train", "color_hard", "test")
            found += [name for name in shown if name in modes_of(task)]
            continue
        try:
            found += expand_modes([mode], task)
        except UserError as error:
            on_problem(mode, error)
    return list(dict.fromkeys(found))


def make_mode(
    name: str, factory: Callable[..., Mode], data_dir: Path | None, options: dict[str, Any]
) -> Mode:
    """Build the mode, refusing options it does not have."""
    allowed = [p for p in inspect.signature(factory).parameters if p not in ("name", "data_dir")]
    for option in options:
        if option not in allowed:
            has = f"has {', '.join(allowed)}" if allowed else "has none"
            raise UserError(f"unknown option {option!r} of mode {name!r}, which {has}.")
    return factory(data_dir=data_dir, **options)
