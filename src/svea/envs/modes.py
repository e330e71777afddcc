"""What makes each mode: `svea.config.modes` has their names."""

from __future__ import annotations

import functools
import inspect
from pathlib import Path
from typing import Any

from svea.config.modes import (
    COLOR_MODES,
    GEOMETRY_MODES,
    LIGHT_MODES,
    MODES,
    PICTURE_MODES,
    ROBOT_MODES,
    VIDEO_MODES,
    is_own_mode,
    modes_of,
)
from svea.config.tasks import is_foreign
from svea.core.errors import UnexpectedOptionError, UserError
from svea.core.importing import import_named
from svea.envs.looks import Mode
from svea.envs.looks.cameras import CameraMode
from svea.envs.looks.colors import ColorMode
from svea.envs.looks.distracting import DistractingMode
from svea.envs.looks.lights import LIGHTS
from svea.envs.looks.pictures import PictureColors, PictureMode, PictureVideo
from svea.envs.looks.videos import VideoMode
from svea.envs.robot.worlds import RobotMode, RobotTestMode

MODES |= {
    "train": functools.partial(Mode, "train"),
    **{name: functools.partial(ColorMode, name) for name in COLOR_MODES},
    **{name: functools.partial(VideoMode, name) for name in VIDEO_MODES},
    "distracting_cs": DistractingMode,
}
GEOMETRY_MODES |= {name: functools.partial(CameraMode, name) for name in GEOMETRY_MODES}
LIGHT_MODES |= {name: functools.partial(look, name) for name, look in LIGHTS.items()}
ROBOT_MODES |= {"train": RobotMode, "test": RobotTestMode}
PICTURE_MODES |= {"picture_colors": PictureColors, "picture_video": PictureVideo}


def make_mode(name: str, task: str, data_dir: Path | None, options: dict[str, Any]) -> Mode:
    """Build a mode of a task, refusing options it does not have."""
    factory = import_named("mode", name) if is_own_mode(name) else modes_of(task)[name]
    if not callable(factory):
        raise UserError(f"mode {name!r} is {type(factory).__name__}; it must be a class of modes.")
    signature = inspect.signature(factory)
    taken = dict(signature.parameters)
    if "name" in taken and taken["name"].default is not inspect.Parameter.empty:
        del taken["name"]  # it has its own
    data = {"data_dir": data_dir} if "data_dir" in taken else {}
    try:
        signature.replace(parameters=list(taken.values())).bind(**data, **options)
    except TypeError as error:
        has = ", ".join(option for option in taken if option != "data_dir")
        # In Python's own words: other libraries look for them, and then leave the option out.
        raise UnexpectedOptionError(
            f"{error}; mode {name!r} has {f'the options {has}' if has else 'no options'}, and is "
            "made with data_dir alone where none is given."
        ) from None
    look = factory(**data, **options)
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
