"""What every environment of pictures does: stack frames, count them, and end in time."""

from dataclasses import dataclass
from typing import Annotated, Any, get_type_hints

import gymnasium as gym
import numpy as np

from svea.config.options import FRAMES
from svea.config.parts import OBSERVATIONS, PLAIN, Parts
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
    observation: Annotated[str, tuple(OBSERVATIONS)]

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


def describe_observations(env: Any) -> tuple[list[int], Parts]:
    """The shape of an environment's pictures on one axis of channels, and all parts."""
    parts = env.get_wrapper_attr("parts") if env.has_wrapper_attr("parts") else PLAIN
    space = env.observation_space
    channels, *size = (space[parts.pictures[0]] if parts.pictures else space).shape
    return [parts.count * channels, *size], parts


class StackedEpisode:
    """The running episode: its newest pictures, and the simulator steps it has left."""

    def __init__(self, settings: Settings, parts: Parts = PLAIN) -> None:
        size, self._parts = settings.image_size, parts
        self._stacks = np.zeros((parts.count, 3 * settings.frame_stack, size, size), np.uint8)
        self._vector = np.zeros(parts.numbers, np.float32)
        self._channels_last = settings.channels_last
        shape = self._of(self._stacks[0]).shape
        self.space: gym.Space[Any] = gym.spaces.Box(0, 255, shape, np.uint8)
        if parts.pictures:
            spaces: dict[str, gym.Space[Any]] = dict.fromkeys(parts.pictures, self.space)
            if parts.vector:
                spaces[parts.vector] = gym.spaces.Box(-np.inf, np.inf, (parts.numbers,), np.float32)
            self.space = gym.spaces.Dict(spaces)
        self.frames, self.running = 0, False
        self._first_seed, self._most_frames = settings.seed, settings.episode_frames

    @property
    def observation(self) -> Any:
        """The last pictures on one axis of channels, oldest first; the caller's own.

        Where there are parts: by their names, and the vector with them.
        """
        parts = self._parts
        if not parts.pictures:
            return self._of(self._stacks[0])
        shown = zip(parts.pictures, map(self._of, self._stacks), strict=True)
        return dict(shown) | ({parts.vector: self._vector.copy()} if parts.vector else {})

    def _of(self, stack: np.ndarray) -> np.ndarray:
        if self._channels_last:
            return np.ascontiguousarray(stack.transpose(1, 2, 0))
        return stack.copy()

    @property
    def newest(self) -> np.ndarray:
        """The newest of each picture `(pictures, 3, size, size)`."""
        return self._stacks[:, -3:]

    def choose_seed(self, given: int | None) -> int | None:
        """The seed of the next episode: the one given, else the first seed, once, else None."""
        seed = self._first_seed if given is None else given
        self._first_seed = None
        return seed

    def begin(self, *pictures: np.ndarray, vector: np.ndarray | None = None) -> Any:
        """Fill the stacks with an episode's first pictures; return the observation."""
        self.frames, self.running = 0, True
        for stack, picture in zip(self._stacks, pictures, strict=True):
            stack.reshape(-1, 3, *stack.shape[1:])[:] = picture
        return self.replace_newest(*pictures, vector=vector)

    def push(self, *pictures: np.ndarray, vector: np.ndarray | None = None) -> Any:
        """Put pictures in the place of the oldest; return the observation."""
        self._stacks[:, :-3] = self._stacks[:, 3:]
        return self.replace_newest(*pictures, vector=vector)

    def replace_newest(self, *pictures: np.ndarray, vector: np.ndarray | None = None) -> Any:
        """Put pictures in the place of the newest, and any vector; return the observation."""
        for stack, picture in zip(self._stacks, pictures, strict=True):
            stack[-3:] = picture
        if vector is not None:
            self._vector = vector
        return self.observation

    def check_running(self) -> None:
        """Refuse a step without an episode."""
        if not self.running:
            raise gym.error.ResetNeeded("the episode is over or was never begun: call reset()")

    def count_frame(self) -> bool:
        """Count a simulator step; whether it was the last one allowed."""
        self.frames += 1
        return self.frames >= self._most_frames
