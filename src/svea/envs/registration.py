"""The names users type: tasks, modes, and `make_env`, which turns them into an environment."""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from svea.data.clips import PROCEDURAL
from svea.envs.discrete import DiscreteActions
from svea.envs.dmc import DMControlEnv, Mode, load_suite_task
from svea.envs.foreign import AdaptedEnv
from svea.envs.looks.colors import SPREAD, ColorMode
from svea.envs.looks.distracting import INTENSITIES, DistractingMode, check_intensity
from svea.envs.looks.videos import CLIPS, VideoMode, check_visible
from svea.envs.rendering import RENDERINGS
from svea.envs.robot.worlds import RobotMode, RobotTestMode, check_world
from svea.errors import UserError, unknown_name

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
_DOMAIN_AND_TASK = {f"{d}_{t}": (d, t) for d, tasks in _SUITE.items() for t in tasks.split()}

ROBOT_TASKS = ("robot_reach", "robot_reach_moving", "robot_push")
"""Our own tasks of the paper's robot, a Kinova Gen3."""

_DOMAIN_AND_TASK |= {name: ("robot", name.removeprefix("robot_")) for name in ROBOT_TASKS}

_FIRST = PAPER_TASKS + ROBOT_TASKS
TASKS = _FIRST + tuple(name for name in _DOMAIN_AND_TASK if name not in _FIRST)
"""Every task as `domain_task`: the paper's six, the robot's three, then all else of the suite."""

ACTION_REPEAT = {
    name: {"cartpole": 8, "finger": 2, "robot": 1}.get(domain, 4)
    for name, (domain, _) in _DOMAIN_AND_TASK.items()
}
"""Simulator steps per decision, as in the paper: 8 for cartpole, 2 for finger, 1 for the robot, 4
otherwise."""

EPISODE_FRAMES = {name: 50 if name in ROBOT_TASKS else 1000 for name in TASKS}
"""Simulator steps per episode, as in the paper."""


def _train(*, data_dir: Path | None = None) -> Mode:
    """The look the agent is trained in; it needs no data."""
    return Mode("train")


MODES: dict[str, Callable[..., Mode]] = {
    "train": _train,
    **{name: functools.partial(ColorMode, name) for name in SPREAD},
    **{name: functools.partial(VideoMode, name) for name in CLIPS},
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


def modes_of(task: str | None) -> dict[str, Callable[..., Mode]]:
    """The modes that a task has; without a task, all there are."""
    if task is None:
        return MODES | ROBOT_MODES
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
            raise UserError(f"mode {text!r} does not fit {task}, which has {', '.join(fitting)}.")
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
    """Refuse what is no mode (of the task, if one is given), or a value that it does not take."""
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


def describe(provenance: dict[str, Any]) -> str:
    """Say in a few words what an environment's pictures are made with.

    >>> describe({"mode": "video_easy", "source": "dmcgb", "clips": 6, "of": 10})
    'video_easy (6 of 10 clips)'
    >>> describe({"mode": "color_hard", "source": "generated", "settings": 100})
    'color_hard (generated)'
    """
    name, source = provenance["mode"], provenance["source"]
    if "intensity" in provenance:
        name = f"{name}:{provenance['intensity']:g}"
    if "world" in provenance:
        name = f"{name}:{provenance['world']}"
    if provenance.get("arm") == "menagerie":
        name = f"{name} with meshes"
    if source in ("none", "stored"):
        return name
    if "of" in provenance:
        return f"{name} ({provenance['clips']} of {provenance['of']} clips)"
    if "clips" in provenance and source != PROCEDURAL:
        return f"{name} ({provenance['clips']} clips of {source})"
    return f"{name} ({source})"


def make_env(
    task: str,
    mode: str = "train",
    *,
    seed: int = 0,
    image_size: int = 84,
    action_repeat: int | None = None,
    episode_frames: int | None = None,
    rendering: str = "full",
    data_dir: str | os.PathLike[str] | None = None,
    render_mode: str | None = "rgb_array",
    render_size: int = 240,
    action_bins: int = 0,
    **mode_options: Any,
) -> gym.Env[np.ndarray, Any]:
    """Make an environment of pictures.

    Args:
        task: A name in `TASKS`, or `module:function`: a function of yours that returns a Gymnasium
            environment of pictures. It is adapted: resized, stacked, actions rescaled.
        mode: A name in `MODES`, or in `ROBOT_MODES` for a robot task: how the world looks. Physics
            and rewards are the same in all. `distracting_cs:0.3` is short for `distracting_cs` with
            `intensity=0.3`, and `test:7` for `test` with `world=7`.
        seed: Seed of the first episode when `reset` is called without one.
        image_size: Side of the observation in pixels.
        action_repeat: Simulator steps per decision; the paper's for the task when not given, and 1
            for an environment of yours.
        episode_frames: Simulator steps per episode, at most; 50 for the robot and 1000 otherwise
            when not given.
        rendering: `full` is dm_control's look; `fast` has no shadows, reflections or antialiasing.
        data_dir: Folder with the benchmark's data; the variable `SVEA_DATA` when not given, and
            generated data without either.
        render_mode: `rgb_array`, or None when `render()` is not needed.
        render_size: Side of the picture that `render()` returns.
        action_bins: 0, or how many values each dimension of the action may take: the actions are
            then numbered, `bins ** dimensions` of them (see `DiscreteActions`).
        **mode_options: Options of the mode: `videos` and `order` of the video modes, `videos` and
            `intensity` of `distracting_cs`, `world` of the robot's `test`, and `menagerie` of both
            modes of the robot.

    Returns:
        A Gymnasium environment: observations `(9, image_size, image_size)` uint8 (three RGB frames,
        oldest first), actions in [-1, 1] or discrete, reward summed over the action repeat.

    >>> env = make_env("cartpole_swingup", "color_hard", seed=1)
    >>> observation, info = env.reset()
    >>> observation.shape, env.action_space.shape
    ((9, 84, 84), (1,))
    >>> env.close()
    """
    if ":" not in task and task not in _DOMAIN_AND_TASK:
        raise unknown_name("task", task, TASKS)
    name, options = parse_mode(mode, None if ":" in task else task)
    for twice in options.keys() & mode_options.keys():
        raise UserError(f"{twice} is given twice: in mode {mode!r} and as {mode_options[twice]!r}.")
    if rendering not in RENDERINGS:
        raise unknown_name("rendering", rendering, RENDERINGS)
    _check_integer("seed", seed, 0, 2**63 - 1)
    _check_integer("image_size", image_size, 16, 1024)
    _check_integer("render_size", render_size, 16, 2048)
    episode_frames = EPISODE_FRAMES.get(task, 1000) if episode_frames is None else episode_frames
    _check_integer("episode_frames", episode_frames, 1, 10**9)
    _check_integer("action_bins", action_bins, 0, 4096)
    if action_repeat is not None:
        _check_integer("action_repeat", action_repeat, 1, 1000)
    if task in ROBOT_TASKS and action_repeat not in (None, 1):
        raise UserError(
            f"action_repeat is {action_repeat}; a robot task takes 1: a step is 0.04 s."
        )
    if render_mode not in (None, "rgb_array"):
        raise UserError(f"render_mode is {render_mode!r}; allowed are 'rgb_array' and None.")
    if name in CLIPS:
        check_visible(name, task)
    factory = modes_of(None if ":" in task else task)[name]
    look = _make_mode(name, factory, _find_data_dir(data_dir), options | mode_options)
    if ":" in task:
        if name != "train":
            raise UserError(
                f"mode {mode!r} needs a task of the suite; {task!r} only has mode 'train'."
            )
        env = _call_factory(
            task,
            seed=seed,
            image_size=image_size,
            action_repeat=action_repeat or 1,
            episode_frames=episode_frames,
            render_mode=render_mode,
            render_size=render_size,
        )
        return _discretise(env, action_bins)
    domain, task_name = _DOMAIN_AND_TASK[task]
    env = DMControlEnv(
        domain,
        task_name,
        look,
        seed=seed,
        image_size=image_size,
        action_repeat=action_repeat or ACTION_REPEAT[task],
        episode_frames=episode_frames,
        rendering=rendering,
        render_mode=render_mode,
        render_size=render_size,
        load=_load_robot_task(look) if isinstance(look, RobotMode) else load_suite_task,
    )
    return _discretise(env, action_bins)


def _load_robot_task(look: RobotMode) -> Callable[[str, str], Any]:
    """What loads a robot task, with the arm that the mode shows."""
    from svea.envs.robot import task
    from svea.envs.robot.model import find_meshes

    meshes = None if look.menagerie is None else find_meshes(look.menagerie)
    return functools.partial(task.load, meshes=meshes)


def register_gymnasium_ids() -> None:
    """Register every task as `svea/<task>-v0`; doing it twice does no harm."""
    for task in TASKS:
        name = f"svea/{task}-v0"
        if name not in gym.registry:
            gym.register(name, entry_point="svea.envs:make_env", kwargs={"task": task})


def _check_integer(field: str, value: Any, low: int, high: int) -> None:
    """Refuse a value that is no integer in [low, high]."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise UserError(f"{field} is {value!r}; it must be an integer from {low} to {high}.")
    if not low <= value <= high:
        raise UserError(f"{field} is {value}; allowed are {low} to {high}.")


def _find_data_dir(given: str | os.PathLike[str] | None) -> Path | None:
    """Return the data folder: the argument, else `SVEA_DATA`, else none."""
    chosen = given if given is not None else os.environ.get("SVEA_DATA") or None
    if chosen is None:
        return None
    folder = Path(chosen).expanduser()
    if not folder.is_dir():
        origin = "data_dir" if given is not None else "the variable SVEA_DATA"
        raise UserError(f"{origin} is {str(folder)!r}, which is not a folder.")
    return folder


def _make_mode(
    name: str, factory: Callable[..., Mode], data_dir: Path | None, options: dict[str, Any]
) -> Mode:
    """Build the mode, refusing options it does not have."""
    allowed = [p for p in inspect.signature(factory).parameters if p not in ("name", "data_dir")]
    for option in options:
        if option not in allowed:
            has = f"has {', '.join(allowed)}" if allowed else "has none"
            raise UserError(f"unknown option {option!r} of mode {name!r}, which {has}.")
    return factory(data_dir=data_dir, **options)


def _call_factory(path: str, **settings: Any) -> gym.Env[np.ndarray, Any]:
    """Call the user's `module:function`, with what it takes of the settings, and adapt its env."""
    module_name, _, function_name = path.partition(":")
    if not module_name or module_name.startswith(".") or not function_name:
        raise UserError(f"task is {path!r}; an environment of yours is named as module:function.")
    if os.getcwd() not in sys.path:  # the worker processes look there, so this one must, too
        sys.path.append(os.getcwd())
    try:
        factory = getattr(importlib.import_module(module_name), function_name)
    except (ImportError, AttributeError) as error:
        raise UserError(
            f"task {path!r} cannot be imported: {error}. Allowed: module:function of a module that "
            "is installed, on PYTHONPATH, or in this folder."
        ) from error
    env = factory(**_accepted(path, factory, {k: settings[k] for k in ("seed", "image_size")}))
    if not isinstance(env, gym.Env):
        raise UserError(f"task {path!r} returned {type(env).__name__}, not a gymnasium.Env.")
    try:
        return AdaptedEnv(env, **settings)
    except UserError as error:
        env.close()
        raise UserError(f"task {path!r} {error}") from None


def _accepted(path: str, factory: Any, settings: dict[str, int]) -> dict[str, int]:
    """Choose the settings that a user's function has parameters for."""
    if not callable(factory):
        raise UserError(f"task {path!r} is {type(factory).__name__}; it must be a function.")
    signature = inspect.signature(factory)
    takes_all = any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())
    given = {k: v for k, v in settings.items() if takes_all or k in signature.parameters}
    try:
        signature.bind(**given)
    except TypeError as error:
        raise UserError(
            f"task {path!r} is called with {', '.join(settings)} where it has such parameters: "
            f"{error}; give the others defaults."
        ) from None
    return given


def _discretise(env: gym.Env[np.ndarray, Any], bins: int) -> gym.Env[np.ndarray, Any]:
    """Number the actions if `bins` is not 0."""
    if not bins:
        return env
    try:
        return DiscreteActions(env, bins)
    except UserError:
        env.close()
        raise
