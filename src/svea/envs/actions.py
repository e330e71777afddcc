"""Actions: what the agent's numbers mean to an environment, and numbered actions for Q-learning."""

from __future__ import annotations

import itertools
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec

from svea.core.errors import NumericsError, UserError

MOST_ACTIONS = 4096
"""Every action is an output of the Q-network, and more than this cannot be explored anyway."""


class DiscreteActions(gym.ActionWrapper[np.ndarray, Any, np.ndarray]):
    """A task with actions in [-1, 1]^n as one with `bins**n` numbered actions.

    Every dimension takes `bins` evenly spaced values from -1 to 1. The numbers count them up with
    the last dimension fastest:

    >>> from svea.envs import make_env
    >>> env = make_env("cartpole_balance", action_bins=3, image_size=16)
    >>> env.action_space, env.vectors.tolist()
    (Discrete(3), [[-1.0], [0.0], [1.0]])
    >>> env.close()
    """

    def __init__(self, env: gym.Env[np.ndarray, np.ndarray], bins: int) -> None:
        """List the actions; refuse too few of them, too many, and spaces of another kind."""
        super().__init__(env)
        space = env.action_space
        if not isinstance(space, gym.spaces.Box):
            raise UserError(
                f"action_bins is {bins}, but this task's actions are {space}: leave action_bins "
                "out (0)."
            )
        if bins < 2:
            raise UserError(f"action_bins is {bins}; allowed are 2 or more, or 0: continuous.")
        dimensions = int(np.prod(space.shape))
        if bins**dimensions > MOST_ACTIONS:
            most = int(MOST_ACTIONS ** (1 / dimensions) + 1e-9)
            cure = f"use {most} or fewer" if most >= 2 else "this task has too many dimensions"
            raise UserError(
                f"action_bins is {bins}, which makes {bins}**{dimensions} = {bins**dimensions:,} "
                f"actions; allowed are {MOST_ACTIONS}: {cure}."
            )
        values = np.linspace(-1, 1, bins, dtype=np.float32)
        self.vectors = np.array(list(itertools.product(values, repeat=dimensions)), np.float32)
        """What each action does, `(bins**n, n)`."""
        self.action_space = gym.spaces.Discrete(len(self.vectors))

    @property
    def spec(self) -> EnvSpec | None:  # type: ignore[override]  # as in Gymnasium's Wrapper
        """That of the environment: `action_bins` is among its arguments, and makes this wrapper."""
        return self.env.spec

    def action(self, action: Any) -> np.ndarray:
        """The vector of a numbered action."""
        return self.vectors[read_choice(action, len(self.vectors))].copy()


def read_choice(action: Any, count: int) -> int:
    """Read a choice among `count`, given as a number or, as agents do, as an array of one."""
    given = np.asarray(action)
    if given.size != 1 or given.item() not in range(count):
        raise UserError(f"action is {action!r}; allowed are 0 to {count - 1}.")
    return int(given.item())


def read_vector(action: Any, space: gym.Space[Any]) -> np.ndarray:
    """An action as floats within [-1, 1]; another shape, or what is not finite, is refused."""
    given = np.asarray(action, np.float64)
    if given.shape != space.shape:
        raise UserError(f"action has shape {given.shape}; this task takes {space.shape}.")
    if not np.isfinite(given).all():
        raise NumericsError(f"action {given.tolist()} is not finite.")
    return np.clip(given, -1.0, 1.0)


def describe_actions(space: gym.Space[Any]) -> tuple[int, int]:
    """Numbers in an action, and choices if it is one of several (0: a vector in [-1, 1])."""
    if isinstance(space, gym.spaces.Discrete):
        return 1, int(space.n)
    return int(np.prod(space.shape or ())), 0


def as_action(environment: Any, action: Any) -> Any:
    """What the environment's ``step`` takes, from the numbers that lie in shared memory."""
    if isinstance(environment.action_space, gym.spaces.Discrete):
        return int(environment.action_space.start) + int(action[0])
    return np.asarray(action, np.float32)
