"""What every environment of pictures does: stack frames, count them, and end in time."""

from __future__ import annotations

from dataclasses import dataclass

import gymnasium as gym
import numpy as np

from svea.config.options import FRAMES

CHANNELS = 3 * FRAMES


@dataclass(frozen=True)
class Shape:
    """What every environment shows, and how long its episodes are: arguments of `make_env`."""

    seed: int | None
    image_size: int
    episode_frames: int
    frame_stack: int
    channels_last: bool
    render_mode: str | None
    render_size: int


class StackedEpisode:
    """The running episode: its newest pictures, and the simulator steps it has left."""

    def __init__(self, shape: Shape) -> None:
        """Begin no episode yet."""
        size = shape.image_size
        self._stack = np.zeros((3 * shape.frame_stack, size, size), np.uint8)
        self._channels_last = shape.channels_last
        self.space = gym.spaces.Box(0, 255, self.observation.shape, np.uint8)
        self.frames, self.running = 0, False
        self._first_seed, self._most_frames = shape.seed, shape.episode_frames

    @property
    def observation(self) -> np.ndarray:
        """The last pictures on one axis of channels, oldest first; the caller's own."""
        if self._channels_last:
            return np.ascontiguousarray(self._stack.transpose(1, 2, 0))
        return self._stack.copy()

    @property
    def newest(self) -> np.ndarray:
        """The newest picture `(3, size, size)`."""
        return self._stack[-3:]

    def choose_seed(self, given: int | None) -> int | None:
        """The seed of the next episode: the one given, else the first seed, once, else None."""
        seed = self._first_seed if given is None else given
        self._first_seed = None
        return seed

    def begin(self) -> None:
        """Start to count."""
        self.frames, self.running = 0, True

    def fill(self, picture: np.ndarray) -> np.ndarray:
        """Fill the stack with an episode's first picture; return the observation."""
        self._stack.reshape(-1, 3, *self._stack.shape[1:])[:] = picture
        return self.observation

    def push(self, picture: np.ndarray) -> np.ndarray:
        """Put a picture in the place of the oldest; return the observation."""
        self._stack[:-3] = self._stack[3:]
        self._stack[-3:] = picture
        return self.observation

    def replace_newest(self, picture: np.ndarray) -> np.ndarray:
        """Put a picture in the place of the newest; return the observation."""
        self._stack[-3:] = picture
        return self.observation

    def check_running(self) -> None:
        """Refuse a step without an episode."""
        if not self.running:
            raise gym.error.ResetNeeded("the episode is over or was never begun: call reset()")

    def count_frame(self) -> bool:
        """Count a simulator step; whether it was the last one allowed."""
        self.frames += 1
        return self.frames >= self._most_frames
