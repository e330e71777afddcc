"""Environments: dm_control and robot tasks as pictures, in their training and in test looks.

    >>> import gymnasium, svea.envs
    >>> env = gymnasium.make("svea/walker_walk-v0", mode="color_hard")

Importing this package registers the Gymnasium ids and neither loads the simulator nor torch.
"""

# ruff: noqa: F401
from svea.config.modes import (
    ACTION_REPEAT,
    EPISODE_FRAMES,
    GEOMETRY_MODES,
    GROUPS,
    LIGHT_MODES,
    MODES,
    PAPER_TASKS,
    PICTURE_MODES,
    ROBOT_MODES,
    ROBOT_TASKS,
    TASKS,
    check_task,
    expand_modes,
    is_foreign,
    modes_of,
    parse_mode,
)
from svea.envs.dmc import DiscreteActions, DMControlEnv
from svea.envs.foreign import AdaptedEnv
from svea.envs.looks import Mode, Scene, describe
from svea.envs.looks.pictures import PictureMode
from svea.envs.registration import make_env, register_gymnasium_ids
from svea.envs.rendering import RENDERINGS, Renderer, gl_info, prepare_simulator

register_gymnasium_ids()
