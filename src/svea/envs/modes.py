"""The modes: what users type, and which tasks have which."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from svea.envs.importing import import_named, is_import_path
from svea.envs.looks import Mode
from svea.envs.looks.colors import COLOR_MODES, ColorMode
from svea.envs.looks.distracting import INTENSITIES, DistractingMode, check_intensity
from svea.envs.looks.pictures import PictureColors, PictureMode, PictureVideo
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

PICTURE_MODES: dict[str, Callable[..., Mode]] = {
    "picture_colors": PictureColors,
    "picture_video": PictureVideo,
}
"""The same for any task, also a user's own environment: they change the drawn picture alone."""

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
        return MODES | ROBOT_MODES | PICTURE_MODES
    if is_foreign(task):
        return {"train": _train} | PICTURE_MODES
    return (ROBOT_MODES if task in ROBOT_TASKS else MODES) | PICTURE_MODES


def parse_mode(text: str, task: str | None = None) -> tuple[str, dict[str, Any]]:
    """Split what users type into the mode's name and its options.

    Args:
        text: A mode, perhaps with a value behind a colon, or `module:class` of a user's own.
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
    if is_own_mode(text):
        return text, {}
    if name not in fitting:
        if name in modes_of(None):
            has = ", ".join(fitting)
            raise UserError(f"mode {text!r} does not fit {task}, which has {has}.")
        unknown = unknown_name("mode", text, fitting)
        raise UserError(f"{unknown}. A mode of your own is named as module:class.")
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
        _ALL: _benchmark_modes(task),
        f"distracting_cs:{_ALL}": [f"distracting_cs:{each:g}" for each in INTENSITIES],
    }
    expanded = [name for mode in modes for name in groups.get(mode, [mode])]
    for mode in expanded:
        check_mode(mode, task)
    return list(dict.fromkeys(expanded))


def _benchmark_modes(task: str | None) -> list[str]:
    """What `all` means: the benchmark's modes, which a user's own environment does not have."""
    if task is not None and is_foreign(task):
        return list(modes_of(task))
    return list(ROBOT_MODES if task in ROBOT_TASKS else MODES)


def is_own_mode(text: str) -> bool:
    """Whether a mode is a user's own, named as `module:class`.

    >>> is_own_mode("my_looks:NightMode"), is_own_mode("test:7"), is_own_mode("distracting_cs:all")
    (True, False, False)
    """
    return is_import_path(text) and text.partition(":")[0] not in modes_of(None)


def label_mode(mode: str, other_task: str) -> str:
    """How records name a mode of another task than the run's: as one more look of the world.

    >>> label_mode("train", "my_worlds:at_night"), label_mode("picture_video", "my_worlds:at_night")
    ('my_worlds:at_night', 'my_worlds:at_night+picture_video')
    >>> label_mode("train", "")
    'train'
    """
    if not other_task:
        return mode
    return other_task if mode == "train" else f"{other_task}+{mode}"


def mode_of_label(label: str, other_task: str) -> str:
    """The mode that `label_mode` named.

    >>> mode_of_label("my_worlds:at_night+picture_video", "my_worlds:at_night")
    'picture_video'
    """
    return "train" if label == other_task else label.removeprefix(f"{other_task}+")


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


def make_mode(name: str, task: str, data_dir: Path | None, options: dict[str, Any]) -> Mode:
    """Build a mode of a task, refusing options it does not have."""
    factory = import_named("mode", name) if is_own_mode(name) else modes_of(task)[name]
    if not callable(factory):
        raise UserError(f"mode {name!r} is {type(factory).__name__}; it must be a class of modes.")
    parameters = inspect.signature(factory).parameters
    allowed = [p for p in parameters if p not in ("name", "data_dir")]
    for option in options:
        if option not in allowed:
            has = f"has {', '.join(allowed)}" if allowed else "has none"
            raise UserError(f"unknown option {option!r} of mode {name!r}, which {has}.")
    look = factory(**{"data_dir": data_dir} if "data_dir" in parameters else {}, **options)
    if not isinstance(look, Mode):
        raise UserError(f"mode {name!r} made {type(look).__name__}, not a svea.envs.Mode.")
    if is_own_mode(name):
        look.name = name  # so that records and tables name what can be typed again
    if is_foreign(task) and name != "train" and not isinstance(look, PictureMode):
        raise UserError(
            f"mode {name!r} changes a scene that svea simulates, and {task!r} is an environment of "
            "yours; derive the mode from svea.envs.PictureMode."
        )
    return look
