"""Environments: dm_control and robot tasks as pictures, in their training and in test looks.

    >>> import gymnasium, svea.envs
    >>> env = gymnasium.make("svea/walker_walk-v0", mode="color_hard")

Importing this package registers the Gymnasium ids and neither loads the simulator nor torch.
"""

from svea.envs.discrete import DiscreteActions
from svea.envs.dmc import DMControlEnv, Mode, Scene
from svea.envs.foreign import AdaptedEnv
from svea.envs.registration import (
    ACTION_REPEAT,
    EPISODE_FRAMES,
    MODES,
    PAPER_TASKS,
    ROBOT_MODES,
    ROBOT_TASKS,
    TASKS,
    check_mode,
    describe,
    expand_modes,
    make_env,
    modes_of,
    parse_mode,
    register_gymnasium_ids,
)
from svea.envs.rendering import RENDERINGS, Renderer, gl_info, prepare_simulator

__all__ = [
    "ACTION_REPEAT",
    "EPISODE_FRAMES",
    "MODES",
    "PAPER_TASKS",
    "RENDERINGS",
    "ROBOT_MODES",
    "ROBOT_TASKS",
    "TASKS",
    "AdaptedEnv",
    "DMControlEnv",
    "DiscreteActions",
    "Mode",
    "Renderer",
    "Scene",
    "check_mode",
    "describe",
    "expand_modes",
    "gl_info",
    "make_env",
    "modes_of",
    "parse_mode",
    "prepare_simulator",
    "register_gymnasium_ids",
]

register_gymnasium_ids()
