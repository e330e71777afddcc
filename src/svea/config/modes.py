"""Tasks and modes by the names that users type, and which task has which modes.

Here are names; `svea.envs` says what makes each of them, when it is imported.
"""

import difflib
import re
import shlex
from collections.abc import Callable, Iterable
from numbers import Integral, Real
from typing import Any

from svea.core.errors import Bounds, UserError, between, unknown_name
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
            f"task is {task!r}, which is an agent of the zoo and not a task; allowed: a name that "
            f"`svea tasks` lists. `svea eval {shlex.quote(task)}` evaluates the agent"
        )
    if is_foreign(task) or task in TASKS:
        return
    near = difflib.get_close_matches(re.sub(r"^svea/|-v0$", "", task), TASKS, n=3, cutoff=0.6)
    hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
    raise UserError(
        f"unknown task {task!r}.{hint} `svea tasks` lists all {len(TASKS)} tasks; one of your own "
        "has a colon after its module: my_module:make, or gymnasium:CarRacing-v3"
    )


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

ROBOT_MODES: Names = dict.fromkeys(["train", "test"])  # those of the robot tasks

PICTURE_MODES: Names = dict.fromkeys(["picture_colors", "picture_video"])
"""For any task, also a user's own environment: they change the drawn picture alone."""

INTENSITIES = (0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5)  # of `distracting_cs`: the benchmark's

WORLDS = 25  # of the robot's `test`

SHIFT_DOMAINS = ("walker", "cheetah", "cartpole", "finger", "ball_in_cup")
"""Domains for which DMC-GB2 says how far to shift."""

WITHOUT_SKY = (
    *("dog", "fish", "humanoid", "point_mass", "reacher"),
    *("quadruped_fetch", "quadruped_run", "swimmer6"),
)
"""Tasks, by a part of their name, whose camera looks down so far that it sees no sky, or seldom."""

WITHOUT_SKY_AND_FLOOR = ("quadruped_escape",)
"""Here a terrain without the floor's texture fills the picture."""


_NUMBERS: dict[str, tuple[str, type, type, Bounds]] = {
    "distracting_cs": ("intensity", float, Real, Bounds(0, 1, excluded=True)),
    "test": ("world", int, Integral, between(0, WORLDS - 1)),
}
"""What a number after a mode's colon is, as in `distracting_cs:0.3` and `test:7`."""


def check_number(mode: str, value: Any) -> Any:
    """Return the number of a mode, if it is one: an intensity, or a world's."""
    name, kind, numbers, bounds = _NUMBERS[mode]
    if isinstance(value, bool) or not isinstance(value, numbers):
        what = "a whole number" if kind is int else "a number"
        raise UserError(f"{name} is {value!r}; allowed: {what}, {bounds.least} to {bounds.most}")
    bounds.check(name, kind(value))
    return kind(value)


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
    """Why a task of the suite lacks a mode that others have; nothing where it has it."""
    if task not in DOMAIN_AND_TASK or task in ROBOT_TASKS:
        return ""
    unseen = WITHOUT_SKY_AND_FLOOR + (WITHOUT_SKY if name == "video_easy" else ())
    if name in VIDEO_MODES and any(part in task for part in unseen):
        where = "sky" if name == "video_easy" else "sky and on the floor"
        return f"it shows its videos in the {where}, which the camera of {task} does not see"
    domain, _ = DOMAIN_AND_TASK[task]
    if "shift" in name and name in GEOMETRY_MODES and domain not in SHIFT_DOMAINS:
        return f"DMC-GB2 defines how far to shift for the tasks of {', '.join(SHIFT_DOMAINS)} only"
    return ""


def parse_mode(text: str, task: str | None = None) -> tuple[str, dict[str, Any]]:
    """Split what users type into a mode's name and its options; refuse it if the task lacks it.

    >>> parse_mode("distracting_cs:0.3"), parse_mode("video_hard")
    (('distracting_cs', {'intensity': 0.3}), ('video_hard', {}))
    """
    if is_own_mode(text):
        return text, {}
    name, colon, value = text.partition(":")
    fitting = modes_of(task)
    if text in GROUPS:
        raise UserError(
            f"{text!r} stands for several modes, {', '.join(GROUPS[text])}; name one of them here"
        )
    if name not in modes_of(None):
        unknown = unknown_name("mode", text, [*fitting, *GROUPS])
        raise UserError(f"{unknown}. A mode of your own is named as module:class.")
    if name not in fitting:
        because = why_not(name, task or "")
        raise UserError(
            f"mode {text!r} does not fit {task}, which has {', '.join(fitting)}"
            + (f"; {because}." if because else ".")
        )
    if not colon:
        return name, {}
    try:
        option, kind, *_ = _NUMBERS[name]
        number = kind(value)
    except (KeyError, ValueError):
        raise UserError(
            f"mode {text!r} has {value!r} after its colon; allowed: a number after two modes, as "
            "in distracting_cs:0.3 and test:7"
        ) from None
    return name, {option: check_number(name, number)}


def expand_modes(modes: Iterable[str], task: str | None = None) -> list[str]:
    """Spell out groups such as `all` and `geometry`, check every mode, and keep each once.

    Groups are those of a task of the suite, unless another task is given.

    >>> expand_modes(["all"], "robot_push")
    ['train', 'test']
    >>> expand_modes(["distracting_cs:.10", "distracting_cs:0.1"])
    ['distracting_cs:0.1']
    """
    parsed = [parse_mode(name, task) for mode in modes for name in _members(mode, task)]
    # A value after a colon has one spelling.
    spelled = (":".join([name, *(f"{v:.12g}" for v in given.values())]) for name, given in parsed)
    return list(dict.fromkeys(spelled))


def _members(mode: str, task: str | None) -> list[str]:
    """The modes that a task has of a group, or the mode itself."""
    if mode not in GROUPS:
        return [mode]
    fitting = modes_of(task or "walker_walk")  # which has all but the robot's
    group = "everything" if mode == "all" and is_foreign(task or "") else mode
    members = [name for name in GROUPS[group] if name.partition(":")[0] in fitting]
    if not members:
        raise UserError(
            f"{task} has no mode of the group {mode!r} ({', '.join(GROUPS[mode])}); it has "
            f"{', '.join(fitting)}."
        )
    return members


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
    """Whether a mode is a user's own, named as `module:class`."""
    return is_import_path(text) and text.partition(":")[0] not in modes_of(None)


def label_mode(mode: str, other_task: str) -> str:
    """How records name a mode of another task than the run's: as one more look of the world.

    >>> label_mode("train", "my_worlds:at_night"), label_mode("picture_video", "my_worlds:at_night")
    ('my_worlds:at_night', 'my_worlds:at_night+picture_video')
    """
    return mode if not other_task else other_task if mode == "train" else f"{other_task}+{mode}"


def mode_of_label(label: str, other_task: str) -> str:
    """The mode that `label_mode` named."""
    return "train" if label == other_task else label.removeprefix(f"{other_task}+")


def modes_for(
    task: str, modes: Iterable[str], on_problem: Callable[[str, UserError], None]
) -> list[str]:
    """The modes of a task that a user means; those that it does not have are problems."""
    found: list[str] = []
    for mode in modes:
        try:
            found += expand_modes([mode], task)
        except UserError as error:
            on_problem(mode, error)
    return list(dict.fromkeys(found))
