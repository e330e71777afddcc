"""The names users type: tasks, modes, and `make_env`, which turns them into an environment."""

from __future__ import annotations

import functools
import importlib
import inspect
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from svea.envs.clips import PROCEDURAL
from svea.envs.colors import SPREAD, ColorMode
from svea.envs.distracting import INTENSITIES, DistractingMode, check_intensity
from svea.envs.dmc import FRAME_STACK, DMControlEnv, Mode
from svea.envs.rendering import RENDERINGS
from svea.envs.videos import CLIPS, VideoMode, check_visible
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

TASKS = PAPER_TASKS + tuple(name for name in _DOMAIN_AND_TASK if name not in PAPER_TASKS)
"""Every task of the dm_control suite as `domain_task`, the paper's six first."""

ACTION_REPEAT = {
    name: {"cartpole": 8, "finger": 2}.get(domain, 4)
    for name, (domain, _) in _DOMAIN_AND_TASK.items()
}
"""Simulator steps per decision, as in the paper: 8 for cartpole, 2 for finger, 4 otherwise."""


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

_ALL = "all"


def parse_mode(text: str) -> tuple[str, dict[str, Any]]:
    """Split what users type into the mode's name and its options.

    >>> parse_mode("distracting_cs:0.3")
    ('distracting_cs', {'intensity': 0.3})
    >>> parse_mode("video_hard")
    ('video_hard', {})
    """
    name, colon, value = text.partition(":")
    if name not in MODES:
        raise unknown_name("mode", text, MODES)
    if not colon:
        return name, {}
    if name != "distracting_cs":
        raise UserError(
            f"mode {text!r} has a value behind its colon, which only distracting_cs takes."
        )
    try:
        intensity = float(value)
    except ValueError:
        raise UserError(
            f"mode {text!r} has no intensity behind its colon; write distracting_cs:0.3."
        ) from None
    return name, {"intensity": check_intensity(intensity)}


def check_mode(text: str) -> None:
    """Refuse what is no mode: an unknown name, an intensity out of range."""
    parse_mode(text)


def expand_modes(modes: Iterable[str]) -> list[str]:
    """Spell out `all` and `distracting_cs:all`, check every mode, and keep each once.

    >>> expand_modes(["train", "distracting_cs:all"])[:3]
    ['train', 'distracting_cs:0.025', 'distracting_cs:0.05']
    >>> expand_modes(["all"])
    ['train', 'color_easy', 'color_hard', 'video_easy', 'video_hard', 'distracting_cs']
    """
    groups = {
        _ALL: list(MODES),
        f"distracting_cs:{_ALL}": [f"distracting_cs:{each:g}" for each in INTENSITIES],
    }
    expanded = [name for mode in modes for name in groups.get(mode, [mode])]
    for mode in expanded:
        check_mode(mode)
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
    if source == "none":
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
    episode_frames: int = 1000,
    rendering: str = "full",
    data_dir: str | os.PathLike[str] | None = None,
    render_mode: str | None = "rgb_array",
    render_size: int = 240,
    **mode_options: Any,
) -> gym.Env[np.ndarray, np.ndarray]:
    """Make an environment of pictures.

    Args:
        task: A name in `TASKS`, or `module:function`: a function of yours that returns an
            environment with the same kind of observations and actions.
        mode: A name in `MODES`: how the world looks. Physics and rewards are the same in all.
            `distracting_cs:0.3` is short for `distracting_cs` with `intensity=0.3`.
        seed: Seed of the first episode when `reset` is called without one.
        image_size: Side of the observation in pixels.
        action_repeat: Simulator steps per decision; the paper's for the task when not given.
        episode_frames: Simulator steps per episode.
        rendering: `full` is dm_control's look; `fast` has no shadows, reflections or antialiasing.
        data_dir: Folder with the benchmark's data; the variable `SVEA_DATA` when not given, and
            generated data without either.
        render_mode: `rgb_array`, or None when `render()` is not needed.
        render_size: Side of the picture that `render()` returns.
        **mode_options: Options of the mode: `videos` and `order` of the video modes, `videos` and
            `intensity` of `distracting_cs`.

    Returns:
        A Gymnasium environment: observations `(9, image_size, image_size)` uint8 (three RGB frames,
        oldest first), actions in [-1, 1], reward summed over the action repeat.

    >>> env = make_env("cartpole_swingup", "color_hard", seed=1)
    >>> observation, info = env.reset()
    >>> observation.shape, env.action_space.shape
    ((9, 84, 84), (1,))
    >>> env.close()
    """
    if ":" not in task and task not in _DOMAIN_AND_TASK:
        raise unknown_name("task", task, TASKS)
    name, options = parse_mode(mode)
    for twice in options.keys() & mode_options.keys():
        raise UserError(f"{twice} is given twice: in mode {mode!r} and as {mode_options[twice]!r}.")
    if rendering not in RENDERINGS:
        raise unknown_name("rendering", rendering, RENDERINGS)
    _check_integer("seed", seed, 0, 2**63 - 1)
    _check_integer("image_size", image_size, 16, 1024)
    _check_integer("render_size", render_size, 16, 2048)
    _check_integer("episode_frames", episode_frames, 1, 10**9)
    if action_repeat is not None:
        _check_integer("action_repeat", action_repeat, 1, 1000)
    if render_mode not in (None, "rgb_array"):
        raise UserError(f"render_mode is {render_mode!r}; allowed are 'rgb_array' and None.")
    if name in CLIPS:
        check_visible(name, task)
    look = _make_mode(name, _find_data_dir(data_dir), options | mode_options)
    if ":" in task:
        if name != "train":
            raise UserError(
                f"mode {mode!r} needs a task of the suite; {task!r} only has mode 'train'."
            )
        return _call_factory(task, seed=seed, image_size=image_size)
    domain, task_name = _DOMAIN_AND_TASK[task]
    return DMControlEnv(
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
    )


def register_gymnasium_ids() -> None:
    """Register every suite task as `svea/<task>-v0`; doing it twice does no harm."""
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


def _make_mode(name: str, data_dir: Path | None, options: dict[str, Any]) -> Mode:
    """Build the mode, refusing options it does not have."""
    factory = MODES[name]
    allowed = [p for p in inspect.signature(factory).parameters if p not in ("name", "data_dir")]
    for option in options:
        if option not in allowed:
            has = f"has {', '.join(allowed)}" if allowed else "has none"
            raise UserError(f"unknown option {option!r} of mode {name!r}, which {has}.")
    return factory(data_dir=data_dir, **options)


def _call_factory(path: str, **settings: int) -> gym.Env[np.ndarray, np.ndarray]:
    """Call the user's `module:function` and check what it returns."""
    module_name, _, function_name = path.partition(":")
    try:
        factory = getattr(importlib.import_module(module_name), function_name)
    except (ImportError, AttributeError) as error:
        raise UserError(f"task {path!r} cannot be imported: {error}.") from error
    parameters = inspect.signature(factory).parameters
    takes_all = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
    env = factory(**{k: v for k, v in settings.items() if takes_all or k in parameters})
    _check_contract(path, env, settings["image_size"])
    return env


def _check_contract(path: str, env: Any, image_size: int) -> None:
    """Refuse an environment whose observations or actions svea cannot learn from."""
    if not isinstance(env, gym.Env):
        raise UserError(f"task {path!r} returned {type(env).__name__}, not a gymnasium.Env.")
    pixels, action = env.observation_space, env.action_space
    want_pixels = gym.spaces.Box(0, 255, (3 * FRAME_STACK, image_size, image_size), np.uint8)
    if pixels != want_pixels:
        env.close()
        raise UserError(f"task {path!r} has observation space {pixels}; svea needs {want_pixels}.")
    want_action = gym.spaces.Box(-1.0, 1.0, action.shape, np.float32)
    if not action.shape or action != want_action:
        env.close()
        raise UserError(
            f"task {path!r} has action space {action}; svea needs Box(-1.0, 1.0, (n,), float32): "
            "wrap it in gymnasium.wrappers.RescaleAction(env, -1.0, 1.0)."
        )
