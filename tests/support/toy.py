"""A toy image environment, as a user would write one: task ``toy:make`` and relatives.

A bright column stands at x in [-1, 1] on a dark ground; the action moves it, and the reward of a
step is 1 - |x|. Episodes last ten decisions, so the return of doing nothing is 10 (1 - |x0|).
"""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

LENGTH = 10  # decisions in an episode
SPEED = 0.4  # the most that x changes in a decision

Observation = NDArray[np.uint8]


class Toy(gym.Env[Observation, NDArray[np.float32]]):
    """Bring the column to the middle."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012

    def __init__(
        self, image_size: int = 16, seed: int = 0, terminate_at: int | None = None
    ) -> None:
        self.observation_space = gym.spaces.Box(0, 255, (9, image_size, image_size), np.uint8)
        self.action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.size, self.terminate_at, self.first_seed = image_size, terminate_at, seed

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=self.first_seed if seed is None and self._np_random is None else seed)
        self.x = start(self.np_random)
        self.ground = int(self.np_random.integers(0, 60))
        self.clock = 0
        self.frames = [self.draw()] * 3
        return np.concatenate(self.frames), {}

    def step(
        self, action: NDArray[np.float32]
    ) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        self.x = float(np.clip(self.x + SPEED * float(action[0]), -1, 1))
        self.clock += 1
        self.frames = [*self.frames[1:], self.draw()]
        terminated = self.clock == self.terminate_at
        truncated = self.clock >= LENGTH
        return np.concatenate(self.frames), 1 - abs(self.x), terminated, truncated, {"x": self.x}

    def draw(self) -> Observation:
        """One frame (3, H, W)."""
        frame = np.full((3, self.size, self.size), self.ground, np.uint8)
        centre = round((self.x + 1) / 2 * (self.size - 1))
        frame[:, 2:-2, max(0, centre - 1) : centre + 2] = 255
        return frame

    def render(self) -> Any:
        return np.kron(self.draw().transpose(1, 2, 0), np.ones((4, 4, 1), np.uint8))


def start(random: np.random.Generator) -> float:
    """Where the column begins: far from the middle, on either side."""
    return float(random.choice([-1.0, 1.0]) * random.uniform(0.6, 1.0))


def return_of_doing_nothing(seed: int) -> float:
    """What the zero action earns in the episode of a seed."""
    environment = Toy()
    environment.reset(seed=seed)
    return LENGTH * (1 - abs(environment.x))


def make(image_size: int = 16, seed: int = 0) -> Toy:
    """The environment as it is; every episode is cut off at its time limit."""
    return Toy(image_size, seed)


def make_terminating(image_size: int = 16) -> Toy:
    """Every episode really ends after four decisions."""
    return Toy(image_size, terminate_at=4)


class Broken(Toy):
    """An environment with a mistake in it."""

    def step(
        self, action: NDArray[np.float32]
    ) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        if self.clock == 2:
            raise ZeroDivisionError("the toy broke")
        return super().step(action)


def make_broken(image_size: int = 16) -> Broken:
    """Raises in the third decision of an episode."""
    return Broken(image_size)


class Dying(Toy):
    """An environment whose process is killed from outside, as by a system out of memory."""

    def step(
        self, action: NDArray[np.float32]
    ) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)


def make_dying(image_size: int = 16) -> Dying:
    """Dies in the first decision."""
    return Dying(image_size)


def make_grey(image_size: int = 16) -> gym.Env[Any, Any]:
    """Breaks the contract: one channel too few."""
    environment = Toy(image_size)
    environment.observation_space = gym.spaces.Box(0, 255, (3, image_size, image_size), np.uint8)
    return environment


class Undefined(Toy):
    """An environment that answers NaN."""

    def __init__(self, image_size: int, what: str) -> None:
        super().__init__(image_size)
        self.what = what
        self.observation_space = gym.spaces.Box(0, 1, (3, image_size, image_size), np.float32)

    def reset(self, **settings: Any) -> tuple[Any, dict[str, Any]]:
        seen, info = super().reset(**settings)
        return (seen[-3:] / 255).astype(np.float32), info

    def step(self, action: NDArray[np.float32]) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        seen, reward, terminated, truncated, info = super().step(action)
        picture = (seen[-3:] / 255).astype(np.float32)
        if self.what == "reward":
            reward = float("nan")
        else:
            picture[0, 0, 0] = np.nan
        return picture, reward, terminated, truncated, info


def make_undefined_reward(image_size: int = 16) -> Undefined:
    """The reward is NaN."""
    return Undefined(image_size, "reward")


def make_undefined_observation(image_size: int = 16) -> Undefined:
    """The observation is NaN."""
    return Undefined(image_size, "observation")


def make_stuck(image_size: int = 16) -> Toy:
    """Begins to draw and never ends, as some drivers do, unless OSMesa draws."""
    from svea.envs.rendering.renderer import announce_first_picture

    announce_first_picture()
    if os.environ.get("MUJOCO_GL") != "osmesa":
        time.sleep(600)
    return Toy(image_size)


def make_slowly(image_size: int = 16) -> Toy:
    """Takes a second to be made, and then draws at once."""
    from svea.envs.rendering.renderer import announce_first_picture

    time.sleep(1.0)
    announce_first_picture()
    return Toy(image_size)


class Diverging(Toy):
    """An environment whose simulation diverges in the fourth decision of every episode."""

    def step(
        self, action: NDArray[np.float32]
    ) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        seen, reward, terminated, truncated, info = super().step(action)
        if self.clock == 4:
            return seen, reward, False, True, info | {"physics_error": "the toy diverged"}
        return seen, reward, terminated, truncated, info


def make_diverging(image_size: int = 16) -> Diverging:
    """Every episode is broken off after four decisions."""
    return Diverging(image_size)


class Successful(Toy):
    """An environment that says, in NumPy's own numbers, whether the task is solved."""

    def step(
        self, action: NDArray[np.float32]
    ) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        seen, reward, terminated, truncated, _ = super().step(action)
        solved = np.bool_(self.clock < LENGTH or self.ground % 2 == 0)
        told = {"is_success": solved, "distance": np.float32(0.5), "seen": seen}
        return seen, reward, terminated, truncated, told


def make_successful(image_size: int = 16) -> Successful:
    """Solved in every decision; at the end, where the ground is even."""
    return Successful(image_size)


def make_wide(image_size: int = 16) -> Toy:
    """Has one more action."""
    environment = Toy(image_size)
    environment.action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
    return environment
