"""`make_env`, which turns the names users type into an environment, and the Gymnasium ids.

What makes each mode: `svea.config.modes` has their names.
"""

import functools
import inspect
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import WrapperSpec

from svea.config import modes
from svea.config.factors import at
from svea.config.modes import is_foreign
from svea.config.options import FRAMES
from svea.core.errors import UnexpectedOptionError, UserError
from svea.core.given import Factory, name_task
from svea.core.importing import import_named
from svea.data.clips import data_folder
from svea.envs.dmc import DiscreteActions, DMControlEnv
from svea.envs.foreign import AdaptedEnv, call_factory
from svea.envs.looks import Mode
from svea.envs.looks.cameras import CameraMode
from svea.envs.looks.colors import ColorMode
from svea.envs.looks.distracting import DistractingMode
from svea.envs.looks.lights import LIGHTS
from svea.envs.looks.pictures import PictureColors, PictureMode, PictureVideo
from svea.envs.looks.varied import VariedMode
from svea.envs.looks.videos import VideoMode
from svea.envs.robot.worlds import RobotMode, RobotTestMode
from svea.envs.stacking import Settings

modes.MODES |= {
    "train": functools.partial(Mode, "train"),
    **{name: functools.partial(ColorMode, name) for name in modes.COLOR_MODES},
    **{name: functools.partial(VideoMode, name) for name in modes.VIDEO_MODES},
    "distracting_cs": DistractingMode,
}
modes.GEOMETRY_MODES |= {name: functools.partial(CameraMode, name) for name in modes.GEOMETRY_MODES}
modes.LIGHT_MODES |= {
    name: functools.partial(LIGHTS[name.rpartition("_")[0]], name) for name in modes.LIGHT_MODES
}
modes.ROBOT_MODES |= {"train": RobotMode, "test": RobotTestMode}
modes.PICTURE_MODES |= {"picture_colors": PictureColors, "picture_video": PictureVideo}


def make_mode(name: str, task: str, data_dir: Path | None, options: dict[str, Any]) -> Mode:
    """Build a mode of a task, perhaps with factors at values, refusing options it does not have."""
    variation = options.get("variation")
    own = {k: v for k, v in options.items() if k != "variation"}
    look = _make_plain_mode(name, task, data_dir, own)
    if not variation:
        return look
    one = next(iter(variation.items()), None) if isinstance(variation, dict) else None
    is_mode = name == "train" and len(variation) == 1 and isinstance(one and one[1], float)
    return VariedMode(task, [look], variation, name=at(*one) if one and is_mode else name)


def make_look(
    mode: str, task: str, data_dir: Path | None, variation: Any, options: dict[str, Any]
) -> Mode:
    """Build the look of an environment: a mode, or several of which each episode shows one."""
    if "," not in mode:
        name, own = modes.parse_mode(mode, task)
        for twice in own.keys() & options.keys():
            raise UserError(f"{twice} is given twice: in mode {mode!r} and as {options[twice]!r}.")
        if variation:
            own["variation"] = own.get("variation", {}) | dict(variation)
        return make_mode(name, task, data_dir, own | options)
    shares = modes.parse_mixture(mode, task)
    looks = [make_look(each, task, data_dir, None, options) for each in shares]
    return VariedMode(task, looks, variation, name=mode, shares=[*shares.values()])


def _make_plain_mode(name: str, task: str, data_dir: Path | None, options: dict[str, Any]) -> Mode:
    factory = import_named("mode", name) if modes.is_own_mode(name) else modes.modes_of(task)[name]
    if not callable(factory):
        raise UserError(f"mode {name!r} is {type(factory).__name__}; it must be a class of modes.")
    signature = inspect.signature(factory)
    known = {"data_dir": data_dir, "task": task}
    data: dict[str, Any] = {k: v for k, v in known.items() if k in signature.parameters}
    try:
        signature.bind(**data, **options)
    except TypeError as error:
        has = ", ".join(option for option in signature.parameters if option not in known)
        # In Python's own words: other libraries look for them, and then leave the option out.
        raise UnexpectedOptionError(
            f"{error}; mode {name!r} has {f'the options {has}' if has else 'no options'}."
        ) from None
    look = factory(**data, **options)
    if not isinstance(look, Mode):
        raise UserError(f"mode {name!r} made {type(look).__name__}, not a svea.envs.Mode.")
    if modes.is_own_mode(name):
        look.name = name  # so that records and tables name what can be typed again
    if is_foreign(task) and name != "train" and not isinstance(look, PictureMode):
        raise UserError(
            f"mode {name!r} changes a scene that svea simulates, and {task!r} is an environment of "
            "yours; derive the mode from svea.envs.PictureMode."
        )
    return look


def make_env(
    task: str | Factory | gym.Env[Any, Any],
    mode: str = "train",
    *,
    seed: int | None = None,
    image_size: int = 84,
    action_repeat: int | None = None,
    episode_frames: int | None = None,
    frame_stack: int = FRAMES,
    channels_last: bool = False,
    rendering: str = "full",
    renderer: str = "auto",
    data_dir: str | os.PathLike[str] | None = None,
    render_mode: str | None = None,
    render_size: int = 240,
    action_bins: int = 0,
    observation: str = "pictures",
    variation: Mapping[str, Any] | None = None,
    **mode_options: Any,
) -> gym.Env[np.ndarray, Any]:
    """Make an environment of pictures.

    Args:
        task: A name in `TASKS`, or an environment of pictures of yours: a function or class that
            makes it, as it is or named as `module:function`, a Gymnasium id, or the environment
            itself. It is adapted: resized, stacked, actions rescaled.
        mode: A name in `modes_of(task)` or `module:class` of yours: how the world looks. Physics
            and rewards are the same.
            `distracting_cs:0.3` is short for `distracting_cs` with `intensity=0.3`, and `test:7`
            for `test` with `world=7`. `light.strength=0.4` is the training world with a factor at
            a value; of `train:0.7,color_easy:0.3` each episode shows one, with these shares.
        seed: Seed of the first episode when `reset` is called without one; None draws one, so that
            environments made without a seed differ.
        image_size: Side of the observation in pixels.
        action_repeat: Simulator steps per decision; the paper's for the task when not given, and 1
            for an environment of yours.
        episode_frames: Simulator steps per episode, at most; 50 for the robot and 1000 otherwise
            when not given.
        frame_stack: Pictures in an observation, the newest last. Agents of svea need three.
        channels_last: Observations are `(image_size, image_size, 3 * frame_stack)`; channels come
            first otherwise, as agents of svea need them.
        rendering: `full` is dm_control's look; `fast` has no shadows, reflections or antialiasing.
        renderer: Who draws what svea simulates: `raster`, our own program, for all that it can
            draw; `opengl`, MuJoCo; `auto`, the program wherever there is a C compiler. The variable
            `SVEA_DRAWING` beats it.
        data_dir: Folder with the benchmark's data; the variable `SVEA_DATA` when not given, and
            generated data without either.
        render_mode: None, or `rgb_array` to have pictures from `render()`.
        render_size: Side of the picture that `render()` returns.
        action_bins: 0, or how many values each dimension of the action may take: the actions are
            then numbered, `bins ** dimensions` of them (see `DiscreteActions`).
        observation: What a robot task shows: only `pictures`, or a dictionary with a second
            picture (`gripper`) and angles and velocities of its joints: `pictures+joints`,
            `pictures+gripper`, `pictures+gripper+joints`.
        variation: Values of factors for every episode, such as `{"light.strength": 0.4}`, or
            ranges from which each draws, `{"camera.roll": (-10, 10)}`; `svea.config.factors` has
            the names. `reset(options={"variation": ...})` does it for one episode.
        **mode_options: Options of the mode: `videos` and `order` of the video modes, `videos` and
            `intensity` of `distracting_cs`, `world` of the robot's `test`.

    Returns:
        A Gymnasium environment: observations `(3 * frame_stack, image_size, image_size)` uint8 (RGB
        frames, oldest first), or a dictionary of such and a vector; actions in [-1, 1] or
        discrete, reward summed over the action repeat.
        Where svea simulates the task, `env.unwrapped.physics` is dm_control's `Physics` and
        `env.unwrapped.state()` the simulator's state.

    >>> env = make_env("cartpole_swingup", "color_hard", seed=1)
    >>> observation, info = env.reset()
    >>> observation.shape, env.action_space.shape
    ((9, 84, 84), (1,))
    >>> env.close()
    """
    made = task if isinstance(task, gym.Env) else None
    task = name_task(type(task.unwrapped) if isinstance(task, gym.Env) else task)
    modes.check_task(task)
    if task in modes.ROBOT_TASKS and action_repeat not in (None, 1):
        raise UserError(
            f"action_repeat is {action_repeat}; a robot task takes 1: a step is 0.04 s."
        )
    if observation != "pictures" and task not in modes.ROBOT_TASKS:
        raise UserError(
            f"observation is {observation!r}, which robot tasks have; {task} takes 'pictures'. An "
            "environment of yours shows what its observation space says."
        )
    settings = Settings(
        seed=seed,
        image_size=image_size,
        action_repeat=modes.ACTION_REPEAT.get(task, 1) if action_repeat is None else action_repeat,
        episode_frames=modes.EPISODE_FRAMES.get(task, 1000)
        if episode_frames is None
        else episode_frames,
        frame_stack=frame_stack,
        channels_last=channels_last,
        rendering=rendering,
        renderer=renderer,
        render_mode=render_mode,
        render_size=render_size,
        action_bins=action_bins,
        observation=observation,
    )
    look = make_look(mode, task, data_folder(data_dir), variation, mode_options)
    if not is_foreign(task):
        env: gym.Env[Any, Any] = DMControlEnv(*modes.DOMAIN_AND_TASK[task], look, settings)
    else:
        env = call_factory(task, seed, image_size) if made is None else made
    try:
        env = AdaptedEnv(env, look, settings, task) if is_foreign(task) else env
        return DiscreteActions(env, action_bins) if action_bins else env
    except UserError as error:
        env.close()
        raise UserError(f"task {task!r}: {error}") from None


def register_gymnasium_ids() -> None:
    """Register every task as `svea/<task>-v0`; doing it twice does no harm.

    >>> register_gymnasium_ids()
    """
    for task in modes.TASKS:
        name = f"svea/{task}-v0"
        if name not in gym.registry:
            usual = -(-modes.EPISODE_FRAMES[task] // modes.ACTION_REPEAT[task])
            fit = WrapperSpec("fit_time_limit", f"{__name__}:fit_time_limit", {"usual": usual})
            gym.register(
                name,
                entry_point="svea.envs:make_env",
                kwargs={"task": task},
                max_episode_steps=usual,
                additional_wrappers=(fit,),
            )


def fit_time_limit(env: gym.Env[Any, Any], usual: int) -> gym.Env[Any, Any]:
    """Make the limit of `gymnasium.make` that of the environment.

    The registered limit is that of the task's own action repeat and episode length; with others it
    would cut episodes short, or promise longer ones. A limit that the user chose stays.
    """
    most = getattr(env.unwrapped, "most_decisions", usual)
    spec = env.spec
    chosen = spec is not None and spec.max_episode_steps != usual
    if chosen or most == usual or not isinstance(env, gym.wrappers.TimeLimit):
        return env
    return gym.wrappers.TimeLimit(env.env, most)
