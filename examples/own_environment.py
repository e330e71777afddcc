"""An environment of your own: a ball falls, a paddle should be under it when it lands.

It does not import svea. Its pictures are 48x32 pixels with the channels last, its action is a
speed in pixels, and its episodes terminate. From this folder:

    svea train own_environment:make_catch --preset quick
    svea train own_environment:make_discrete_catch --preset quick --base dqn

docs/your-environment.md says how svea adapts it.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

HEIGHT, WIDTH, PADDLE = 48, 32, 8  # pixels
FALL, SPEED = 6, 4.0  # pixels per step: of the ball, and the most the paddle can move


class Catch(gym.Env[np.ndarray, Any]):
    """The reward is 1 if the ball lands on the paddle; the episode ends there."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 15}  # noqa: RUF012 (Gymnasium's form)

    def __init__(self, discrete: bool = False) -> None:
        """Declare the spaces."""
        self.observation_space = gym.spaces.Box(0, 255, (HEIGHT, WIDTH, 3), np.uint8)
        self.action_space = (
            gym.spaces.Discrete(3)  # left, stay, right
            if discrete
            else gym.spaces.Box(-SPEED, SPEED, (1,), np.float32)
        )
        self.discrete = discrete

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Drop a ball. All randomness comes from `self.np_random`, which the seed sets."""
        super().reset(seed=seed)
        self.ball = self.np_random.integers(2, WIDTH - 2)
        self.paddle = self.np_random.uniform(PADDLE / 2, WIDTH - PADDLE / 2)
        self.height = HEIGHT
        return self.picture(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Move the paddle, and let the ball fall."""
        speed = SPEED * (action - 1) if self.discrete else float(action[0])
        self.paddle = float(np.clip(self.paddle + speed, PADDLE / 2, WIDTH - PADDLE / 2))
        self.height -= FALL
        landed = self.height <= FALL
        caught = landed and abs(self.ball - self.paddle) <= PADDLE / 2
        return self.picture(), float(caught), landed, False, {}

    def picture(self) -> np.ndarray:
        """Draw the scene, `(HEIGHT, WIDTH, 3)`."""
        scene = np.full((HEIGHT, WIDTH, 3), (20, 20, 60), np.uint8)
        top, left = HEIGHT - self.height, round(self.paddle - PADDLE / 2)
        scene[top : top + FALL, self.ball - 2 : self.ball + 2] = (255, 210, 60)
        scene[-FALL:, left : left + PADDLE] = (230, 230, 230)
        return scene


def make_catch() -> Catch:
    """Continuous actions: the paddle's speed."""
    return Catch()


def make_discrete_catch() -> Catch:
    """Discrete actions: left, stay, right."""
    return Catch(discrete=True)
