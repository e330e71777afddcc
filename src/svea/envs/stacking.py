"""What every environment of pictures does: stack frames, count them, and end in time."""

from dataclasses import dataclass
from typing import Annotated, get_type_hints

import gymnasium as gym
import numpy as np

from svea.config.options import FRAMES
from svea.core.errors import UserError, between, unknown_name
from svea.envs.rendering import RENDERERS, RENDERINGS

CHANNELS = 3 * FRAMES


@dataclass(frozen=True)
class Settings:
    """Arguments of `make_env`, each with its bounds or choices, which every environment obeys."""

    seed: Annotated[int | None, between(0, 2**63 - 1)]
    image_size: Annotated[int, between(16, 1024)]
    action_repeat: Annotated[int, between(1, 1000)]
    episode_frames: Annotated[int, between(1, 10**9)]
    frame_stack: Annotated[int, between(1, 64)]
    channels_last: Annotated[bool, (True, False)]
    rendering: Annotated[str, RENDERINGS]
    renderer: Annotated[str, RENDERERS]
    render_mode: Annotated[str | None, (None, "rgb_array")]
    render_size: Annotated[int, between(16, 2048)]
    action_bins: Annotated[int, between(0, 4096)]

    def __post_init__(self) -> None:
        """Refuse what is no choice, or no integer within its bounds."""
        for name, kind in get_type_hints(Settings, include_extras=True).items():
            value, allowed = getattr(self, name), kind.__metadata__[0]
            if isinstance(allowed, tuple):
                if value not in allowed:
                    raise unknown_name(name, str(value), map(str, allowed))
            elif name != "seed" or value is not None:
                if isinstance(value, bool) or not isinstance(value, int | np.integer):
                    raise UserError(f"{name} is {value!r}; it must be an integer.")
                allowed.check(name, int(value))


class StackedEpisode:
    """The running episode: its newest pictures, and the simulator steps it has left."""

    def __init__(self, settings: Settings) -> None:
        size = settings.image_size
        self._stack = np.zeros((3 * settings.frame_stack, size, size), np.uint8)
        self._channels_last = settings.channels_last
        self.space = gym.spaces.Box(0, 255, self.observation.shape, np.uint8)
        self.frames, self.running = 0, False
        self._first_seed, self._most_frames = settings.seed, settings.episode_frames

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

    def begin(self, picture: np.ndarray) -> np.ndarray:
        """Fill the stack with an episode's first picture; return the observation."""
        self.frames, self.running = 0, True
        self._stack.reshape(-1, 3, *self._stack.shape[1:])[:] = picture
        return self.observation

    def push(self, picture: np.ndarray) -> np.ndarray:
        """Put a picture in the place of the oldest; return the observation."""
        self._stack[:-3] = self._stack[3:]
        return self.replace_newest(picture)

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
