"""Tasks and modes by the names that users type, and which task has which modes.

Here are names; `svea.envs` says what makes each of them, when it is imported.
"""

import difflib
import math
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from numbers import Integral, Real
from typing import Any

from svea.config import factors
from svea.config.factors import FACTORS, PICTURE, Factor
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


ALL = factors.ALL

WITHOUT_FACTORS: dict[str, tuple[str, ...]] = {
    "background": tuple(
        name for name in DOMAIN_AND_TASK
        if any(part in name for part in (*WITHOUT_SKY, *WITHOUT_SKY_AND_FLOOR))
    ),
    "floor": WITHOUT_SKY_AND_FLOOR,
    "agent.hue": ROBOT_TASKS,  # their arm is grey
    "agent.saturation": ROBOT_TASKS,
}  # fmt: skip
"""Tasks whose pictures show nothing of a factor or of a group of them."""

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


def factors_of(task: str | None) -> dict[str, Factor]:
    """The factors that a task has; without a task, all there are.

    >>> list(factors_of("my_package:make_env"))[:3]
    ['picture.hue', 'picture.saturation', 'picture.brightness']
    """
    if is_foreign(task or ""):
        return {name: one for name, one in FACTORS.items() if one.group == PICTURE}
    lacking = tuple(part for part, tasks in WITHOUT_FACTORS.items() if task in tasks)
    return {name: one for name, one in FACTORS.items() if not name.startswith(lacking)}


def check_factor(name: str, task: str | None = None) -> Factor:
    """A factor by its name; an unknown one is refused, and so is one that the task lacks."""
    found, fitting = factors.find_factor(name), factors_of(task)
    if name not in fitting:
        own = is_foreign(task or "")
        why = "svea does not simulate it" if own else "its pictures show none of it"
        lacking = WITHOUT_FACTORS.get(name, WITHOUT_FACTORS.get(found.group, ()))
        which = "all that svea simulates" + (f" but {', '.join(lacking)}" if lacking else "")
        has = "only the factors of the picture, " if own else ""
        raise UserError(
            f"{task} has no factor {name!r}: {why}. Tasks that have it: {which}. {task} has "
            f"{has}{', '.join(fitting)}"
        )
    return found


def check_variation(given: Any, task: str | None, *, drawn: bool = False) -> dict[str, Any]:
    """Values of a task's factors by name, as they are given; `drawn`: pairs are ranges, too."""
    if not isinstance(given, Mapping):
        allowed = f"values by factor, {factors.EXAMPLE}"
        raise UserError(f"variation is {str(given)[:60]!r}; allowed: {allowed}")
    checked: dict[str, Any] = {}
    for name, value in given.items():
        factor = check_factor(str(name)[:60], task)
        is_range = drawn and isinstance(value, list | tuple) and len(value) == 2
        checked[factor.name] = factor.ends(*value) if is_range else factor.check(value)
    return checked


def parse_factor(text: str, task: str | None = None) -> tuple[str, float]:
    """A factor and its value, such as `light.strength=0.4`."""
    name, _, value = text.partition("=")
    return name, check_factor(name, task).parse(value)


def vary_modes(names: Iterable[str], values: int, task: str) -> list[str]:
    """The modes in which factors take so many values each: train, and one per other value.

    >>> vary_modes(["light.strength"], 4, "walker_walk")
    ['train', 'light.strength=0', 'light.strength=2', 'light.strength=3']
    """
    names = [name for given in names for name in (factors_of(task) if given == ALL else [given])]
    chosen = [check_factor(name, task) for name in dict.fromkeys(names)]
    modes = (factors.at(one.name, value) for one in chosen for value in one.values(values))
    return list(dict.fromkeys(["train", *modes]))


def parse_mode(text: str, task: str | None = None) -> tuple[str, dict[str, Any]]:
    """Split what users type into a mode's name and its options; refuse it if the task lacks it.

    A factor at a value is the training world with a variation.

    >>> parse_mode("distracting_cs:0.3"), parse_mode("video_hard")
    (('distracting_cs', {'intensity': 0.3}), ('video_hard', {}))
    >>> parse_mode("light.strength=0.4")
    ('train', {'variation': {'light.strength': 0.4}})
    """
    if is_own_mode(text):
        return text, {}
    if "=" in text:
        return "train", {"variation": dict([parse_factor(text, task)])}
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


Shares = dict[str, float]
"""Modes, each with how often an episode shows it."""


def parse_mixture(text: str, task: str | None = None) -> Shares:
    """Read modes with their shares, which add up to 1; a single mode has the share 1.

    >>> parse_mixture("train:0.7,distracting_cs:0.1:0.3")
    {'train': 0.7, 'distracting_cs:0.1': 0.3}
    """
    if "," not in text:
        return {_spelled(text, task): 1.0}
    shares: Shares = {}
    for word in text.split(","):
        mode, _, number = word.strip().rpartition(":")
        try:
            share = float(number)
        except ValueError:
            share = math.nan
        if not 0 < share <= 1:
            raise UserError(
                f"{word.strip()!r} in the mixture {text!r} has no share; allowed: MODE:SHARE with "
                "shares above 0 that add up to 1, e.g. train:0.7,color_easy:0.3"
            )
        mode = _spelled(mode, task)
        shares[mode] = shares.get(mode, 0.0) + share
    if not math.isclose(total := sum(shares.values()), 1, abs_tol=1e-6):
        raise UserError(
            f"the shares of {text!r} add up to {total:g}; allowed: 1, e.g. "
            + ",".join(f"{mode}:{share / total:.3g}" for mode, share in shares.items())
        )
    return {mode: share / total for mode, share in shares.items()}


def check_worlds(train_mode: str, train_vary: str, task: str) -> None:
    """Refuse worlds of training that a task does not have."""
    parse_mixture(train_mode, task)
    check_variation(factors.parse_ranges(train_vary), task, drawn=True)


def name_worlds(train_mode: str, train_vary: str) -> str:
    """What training shows besides its own world, as results name it; empty if nothing else.

    >>> name_worlds("color_easy", "camera.roll=-9..9"), name_worlds("train", "")
    ('color_easy, camera.roll=-9..9', '')
    """
    parts = ("" if train_mode == "train" else train_mode, train_vary)
    return ", ".join(filter(None, parts))


def trained_on(train_mode: str, train_vary: str, mode: str) -> bool:
    """Whether training has shown the world of a mode, other than `train`.

    >>> [trained_on("train", "camera.roll=-9..9", f"camera.roll={at}") for at in (5, 10)]
    [True, False]
    """
    if found := factors.read_mode(mode):
        low, high = factors.parse_ranges(train_vary).get(found[0], (math.inf, -math.inf))
        return low <= found[1] <= high
    return mode != "train" and mode in parse_mixture(train_mode)


def expand_modes(modes: Iterable[str], task: str | None = None) -> list[str]:
    """Spell out groups such as `all` and `geometry`, check every mode, and keep each once.

    Groups are those of a task of the suite, unless another task is given.

    >>> expand_modes(["all"], "robot_push")
    ['train', 'test']
    >>> expand_modes(["distracting_cs:.10", "distracting_cs:0.1"])
    ['distracting_cs:0.1']
    """
    named = [name for mode in modes for name in _members(mode, task)]
    return list(dict.fromkeys(_spelled(name, task) for name in named))


def _spelled(mode: str, task: str | None) -> str:
    """A mode with its number in the one spelling that it has."""
    name, given = parse_mode(mode, task)
    if "variation" in given:
        return factors.at(*next(iter(given["variation"].items())))
    return ":".join([name, *(f"{value:.12g}" for value in given.values())])


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
    if is_factor(mode):
        return mode.partition("=")[0]
    long = (name for name in ("geometry", "lights") if mode in GROUPS[name])
    name = mode.partition(":")[0]
    return next(long, name if name in modes_of(None) else mode)


def in_order(modes: Iterable[str]) -> list[str]:
    """Modes, each once, in the order in which tables list them: train first, users' own last.

    >>> in_order(["my:Night", "shift_easy", "distracting_cs:0.5", "distracting_cs:0.05", "train"])
    ['train', 'distracting_cs:0.05', 'distracting_cs:0.5', 'shift_easy', 'my:Night']
    """
    places = {name: place for place, name in enumerate([*modes_of(None), *FACTORS])}

    def place(mode: str) -> tuple[int, float]:
        if varied := factors.read_mode(mode):
            return places[varied[0]], varied[1]
        name, _, value = mode.partition(":")
        number = float(value) if value.replace(".", "", 1).isdecimal() else 0.0
        return places.get(name, len(places)), number

    return sorted(dict.fromkeys(modes), key=place)


def is_factor(mode: str) -> bool:
    """Whether a mode is a factor at a value."""
    return factors.read_mode(mode) is not None


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
