"""Tasks and modes by the names that users type, and which task has which modes.

Here are names; `svea.envs` says what makes each of them, when it is imported.
"""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Callable, Iterable
from numbers import Integral, Real
from typing import Any

from svea.core.errors import UserError, unknown_name
from svea.core.importing import is_import_path

PAPER_TASKS = (
    "walker_walk",
    "walker_stand",
    "cartpole_swingup",
    "cartpole_balance",
    "ball_in_cup_catch",
    "finger_spin",
)

# Written out, because asking dm_control takes two seconds; a test compares the two.
_SUITE = {
    "acrobot": "swingup swingup_sparse",
    "ball_in_cup": "catch",
    "cartpole": "balance balance_sparse swingup swingup_sparse three_poles two_poles",
    "cheetah": "run",
    "dog": "fetch run stand trot walk",
    "finger": "spin turn_easy turn_hard",
    "fish": "swim upright",
    "hopper": "hop stand",
    "humanoid": "run run_pure_state stand walk",
    "humanoid_CMU": "run stand walk",
    "lqr": "lqr_2_1 lqr_6_2",
    "manipulator": "bring_ball bring_peg insert_ball insert_peg",
    "pendulum": "swingup",
    "point_mass": "easy hard",
    "quadruped": "escape fetch run walk",
    "reacher": "easy hard",
    "stacker": "stack_2 stack_4",
    "swimmer": "swimmer15 swimmer6",
    "walker": "run stand walk",
}
DOMAIN_AND_TASK = {f"{d}_{t}": (d, t) for d, tasks in _SUITE.items() for t in tasks.split()}

ROBOT_TASKS = ("robot_reach", "robot_reach_moving", "robot_push")
"""Our own tasks of the paper's robot, a Kinova Gen3."""

DOMAIN_AND_TASK |= {name: ("robot", name.removeprefix("robot_")) for name in ROBOT_TASKS}

_FIRST = PAPER_TASKS + ROBOT_TASKS
TASKS = _FIRST + tuple(name for name in DOMAIN_AND_TASK if name not in _FIRST)
"""Every task as `domain_task`: the paper's six, the robot's three, then all else of the suite."""

ACTION_REPEAT = {
    name: {"cartpole": 8, "finger": 2, "robot": 1}.get(domain, 4)
    for name, (domain, _) in DOMAIN_AND_TASK.items()
}
"""Simulator steps per decision, as in the paper: 8 for cartpole, 2 for finger, 1 for the robot, 4
otherwise."""

EPISODE_FRAMES = {name: 50 if name in ROBOT_TASKS else 1000 for name in TASKS}
"""Simulator steps per episode, as in the paper."""


def is_foreign(task: str) -> bool:
    """Whether a task is a user's own environment, named as `module:function` or `module:id`.

    >>> is_foreign("walker_walk"), is_foreign("mygames:make"), is_foreign("ale_py:ALE/Pong-v5")
    (False, True, True)
    """
    return ":" in task


def check_task(task: str) -> None:
    """Refuse a name that is neither a task nor `module:function`.

    >>> check_task("waler_walk")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    svea.core.errors.UserError: unknown task 'waler_walk'. Did you mean 'walker_walk'? ...
    """
    if task.startswith("zoo:"):
        raise UserError(
            f"task is {task!r}, which is an agent of the zoo and not a task. "
            f"`svea eval {shlex.quote(task)}` evaluates it, `svea tasks` lists tasks; a module "
            "of yours needs another name than zoo"
        )
    if is_foreign(task) or task in TASKS:
        return
    ours = re.sub(r"^svea/(.*)-v0$", r"\1", task)
    near = difflib.get_close_matches(ours, TASKS, n=3, cutoff=0.6)
    module, dot, function = task.rpartition(".")
    if ours == task and re.search(r"-v\d+$", task):
        hint = (
            "Name a Gymnasium id with the module that registers it, as in gymnasium:CarRacing-v3 "
            "or ale_py:ALE/Pong-v5."
        )
    elif near:
        hint = f"Did you mean {' or '.join(map(repr, near))}?"
    elif dot and task.replace(".", "").isidentifier():
        hint = f"An environment of your own has a colon before its function: {module}:{function}."
    else:
        hint = "An environment of your own is named as module:function."
    raise UserError(f"unknown task {task!r}. {hint} `svea tasks` lists all {len(TASKS)} tasks")


Names = dict[str, Callable[..., Any] | None]
"""Modes, each with what makes it: a function called with `data_dir=` (a folder or None) and the
mode's own options, once `svea.envs` is imported."""


def _levels(*kinds: str) -> tuple[str, ...]:
    return tuple(f"{kind}_{level}" for kind in kinds for level in ("easy", "hard"))


COLOR_MODES, VIDEO_MODES = _levels("color"), _levels("video")
MODES: Names = dict.fromkeys(["train", *COLOR_MODES, *VIDEO_MODES, "distracting_cs"])
"""The paper's, and what `all` means."""

GEOMETRY_MODES: Names = dict.fromkeys(
    _levels("rotate", "shift", "rotate_shift", "rotate_shift_unpaired", "camera")
)
"""The camera is turned or moved: DMC-GB2's, and RL-ViGen's cameras."""

LIGHT_MODES: Names = dict.fromkeys(_levels("light_position", "light_color", "moving_light"))
"""The lights are moved or coloured: RL-ViGen's."""

ROBOT_MODES: Names = dict.fromkeys(["train", "test"])
"""Those of the robot tasks."""

PICTURE_MODES: Names = dict.fromkeys(["picture_colors", "picture_video"])
"""For any task, also a user's own environment: they change the drawn picture alone."""

INTENSITIES = (0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5)
"""Of `distracting_cs`: the benchmark's."""

WORLDS = 25
"""Of the robot's `test`."""

SHIFT_DOMAINS = ("walker", "cheetah", "cartpole", "finger", "ball_in_cup")
"""Domains for which DMC-GB2 says how far to shift."""

WITHOUT_SKY = (
    *("dog", "fish", "humanoid", "point_mass", "reacher"),
    *("quadruped_fetch", "quadruped_run", "swimmer6"),
)
"""Tasks, by a part of their name, whose camera looks down so far that it sees no sky, or seldom."""

WITHOUT_SKY_AND_FLOOR = ("quadruped_escape",)
"""Here a terrain without the floor's texture fills the picture."""


def check_intensity(value: Any) -> float:
    """Return the intensity of `distracting_cs`, if it is one."""
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not number or not 0 < value <= 1:  # not a number fails both comparisons
        raise UserError(
            f"intensity is {value!r}; it must be a number above 0 and up to 1 (the benchmark's are "
            f"{', '.join(f'{each:g}' for each in INTENSITIES)})."
        )
    return float(value)


def check_world(value: Any) -> int:
    """Return the number of a world of the robot's `test`, if it is one."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise UserError(f"world is {value!r}; it must be an integer from 0 to {WORLDS - 1}.")
    number = int(value)
    if not 0 <= number < WORLDS:
        raise UserError(f"world is {number}; allowed are 0 to {WORLDS - 1}.")
    return number


# What may follow a mode's colon: the option, how to read and to check it, an example.
_AFTER_COLON: dict[str, tuple[str, type, Callable[[Any], Any], str]] = {
    "distracting_cs": ("intensity", float, check_intensity, "distracting_cs:0.3"),
    "test": ("world", int, check_world, "test:7"),
}

GROUPS: dict[str, tuple[str, ...]] = {
    "usual": ("train", "color_hard", "test"),
    "all": (*MODES, "test"),
    "everything": (*(MODES | GEOMETRY_MODES | LIGHT_MODES), "test", *PICTURE_MODES),
    "colors": COLOR_MODES,
    "videos": VIDEO_MODES,
    "geometry": tuple(GEOMETRY_MODES),
    "lights": tuple(LIGHT_MODES),
    "distracting_cs:all": tuple(f"distracting_cs:{each:g}" for each in INTENSITIES),
}
"""Names for several modes. A task has of a group those modes that it has at all; of a user's own
environment, `all` is `everything`."""


def modes_of(task: str | None) -> Names:
    """The modes that a task has; without a task, all there are.

    >>> list(modes_of("robot_push"))
    ['train', 'test', 'picture_colors', 'picture_video']
    """
    suite = MODES | GEOMETRY_MODES | LIGHT_MODES
    if task is None:
        return suite | ROBOT_MODES | PICTURE_MODES
    if is_foreign(task):
        return {"train": MODES["train"]} | PICTURE_MODES
    if task in ROBOT_TASKS:
        return ROBOT_MODES | PICTURE_MODES
    return {name: suite[name] for name in suite if not why_not(name, task)} | PICTURE_MODES


def why_not(name: str, task: str) -> str:
    """Why a task of the suite lacks a mode that others have; nothing where it has it.

    >>> why_not("shift_hard", "walker_walk")
    ''
    """
    unseen = WITHOUT_SKY_AND_FLOOR + (WITHOUT_SKY if name == "video_easy" else ())
    if name in VIDEO_MODES and any(part in task for part in unseen):
        where = "sky" if name == "video_easy" else "sky and on the floor"
        return f"it shows its videos in the {where}, which the camera of {task} does not see"
    domain, _ = DOMAIN_AND_TASK.get(task, ("", ""))
    if "shift" in name and name in GEOMETRY_MODES and domain not in SHIFT_DOMAINS:
        return f"DMC-GB2 defines how far to shift for the tasks of {', '.join(SHIFT_DOMAINS)} only"
    return ""


def parse_mode(text: str, task: str | None = None) -> tuple[str, dict[str, Any]]:
    """Split what users type into the mode's name and its options.

    Args:
        text: A mode, perhaps with a value after a colon, or `module:class` of a user's own.
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
    if name not in fitting or text in GROUPS:
        raise _unfit(text, name, task)
    if not colon:
        return name, {}
    if name not in _AFTER_COLON:
        raise UserError(
            f"mode {text!r} has a value after its colon, which only distracting_cs and test take."
        )
    option, kind, check, example = _AFTER_COLON[name]
    try:
        number = kind(value)
    except ValueError:
        raise UserError(
            f"mode {text!r} has no {option} after its colon; write {example}."
        ) from None
    return name, {option: check(number)}


def _unfit(text: str, name: str, task: str | None) -> UserError:
    """What to say of a mode that is unknown, or that the task does not have."""
    fitting = modes_of(task)
    if is_group(text):
        first = next((mode for mode in GROUPS[text] if mode.partition(":")[0] in fitting), "train")
        return UserError(f"{text!r} stands for several modes; name one of them here, e.g. {first}.")
    if task is not None and name in modes_of(None):
        of_suite = task in DOMAIN_AND_TASK and task not in ROBOT_TASKS
        because = why_not(name, task) if of_suite else ""
        return UserError(
            f"mode {text!r} does not fit {task}, which has {', '.join(fitting)}"
            + (f"; {because}." if because else ".")
        )
    return _unknown(text, fitting)


def _unknown(text: str, allowed: Iterable[str]) -> UserError:
    unknown = unknown_name("mode", text, allowed)
    return UserError(f"{unknown}. A mode of your own is named as module:class.")


def check_mode(text: str, task: str | None = None) -> None:
    """Refuse an unknown mode, one that the task does not have, or a value that it does not take.

    >>> check_mode("shift_easy", "robot_push")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    svea.core.errors.UserError: mode 'shift_easy' does not fit robot_push, which has train, ...
    """
    parse_mode(text, task)


def expand_modes(modes: Iterable[str], task: str | None = None) -> list[str]:
    """Spell out groups such as `all` and `geometry`, check every mode, and keep each once.

    Args:
        modes: What users type: modes, and groups of them.
        task: Whose modes a group is, and which must have the others; a task of the suite without.

    >>> expand_modes(["train", "distracting_cs:all"])[:3]
    ['train', 'distracting_cs:0.025', 'distracting_cs:0.05']
    >>> expand_modes(["all"])
    ['train', 'color_easy', 'color_hard', 'video_easy', 'video_hard', 'distracting_cs']
    >>> expand_modes(["all"], "robot_push")
    ['train', 'test']
    >>> expand_modes(["distracting_cs:.10", "distracting_cs:0.1"])
    ['distracting_cs:0.1']
    """
    expanded = [name for mode in modes for name in _members(mode, task)]
    return list(dict.fromkeys(_spelled(mode, task) for mode in expanded))


def _spelled(mode: str, task: str | None) -> str:
    """A mode as records name it: a value after a colon has one spelling."""
    name, options = parse_mode(mode, task)
    return ":".join([name, *(f"{value:.12g}" for value in options.values())])


def _members(mode: str, task: str | None) -> list[str]:
    """The modes that a task has of a group, or the mode itself."""
    fitting = modes_of(task or "walker_walk")  # which has all but the robot's
    if mode not in GROUPS:
        if mode.partition(":")[0] not in modes_of(None) and not is_own_mode(mode):
            raise _unknown(mode, [*fitting, *GROUPS])
        return [mode]
    group = "everything" if mode == "all" and is_foreign(task or "") else mode
    members = [name for name in GROUPS[group] if name.partition(":")[0] in fitting]
    if not members:
        raise UserError(
            f"{task} has no mode of the group {mode!r} ({', '.join(GROUPS[mode])}); it has "
            f"{', '.join(fitting)}."
        )
    return members


def is_group(text: str) -> bool:
    """Whether a name stands for several modes.

    >>> is_group("geometry"), is_group("rotate_easy")
    (True, False)
    """
    return text in GROUPS


def family(mode: str) -> str:
    """What a table or figure shows a mode together with: its group if that is long, else itself.

    >>> [family(mode) for mode in ("rotate_easy", "distracting_cs:0.3", "gymnasium:CarRacing-v3")]
    ['geometry', 'distracting_cs', 'gymnasium:CarRacing-v3']
    """
    long = (name for name in ("geometry", "lights") if mode in GROUPS[name])
    name = mode.partition(":")[0]
    return next(long, name if name in modes_of(None) else mode)


def in_order(modes: Iterable[str]) -> list[str]:
    """Modes, each once, in the order in which tables list them: train first, users' own last.

    >>> in_order(["my:Night", "shift_easy", "distracting_cs:0.5", "distracting_cs:0.05", "train"])
    ['train', 'distracting_cs:0.05', 'distracting_cs:0.5', 'shift_easy', 'my:Night']
    """
    places = {name: place for place, name in enumerate(modes_of(None))}

    def place(mode: str) -> tuple[int, float]:
        name, _, value = mode.partition(":")
        number = float(value) if value.replace(".", "", 1).isdecimal() else 0.0
        return places.get(name, len(places)), number

    return sorted(dict.fromkeys(modes), key=place)


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
    """The modes of a task that a user means, as far as it has them.

    Args:
        task: whose modes.
        modes: as typed.
        on_problem: called with each mode that the task does not have.
    """
    found: list[str] = []
    for mode in modes:
        try:
            found += expand_modes([mode], task)
        except UserError as error:
            on_problem(mode, error)
    return list(dict.fromkeys(found))
