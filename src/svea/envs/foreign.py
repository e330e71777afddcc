"""A user's own Gymnasium environment of pictures, as the kind that svea learns from.

Pictures of any size, channels first or last, colour or grey, become three stacked RGB frames of one
size, alone or in a dictionary with a second one and a vector; actions of any finite range become a
vector in [-1, 1]; discrete actions stay what they are.
"""

import inspect
import secrets
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

from svea.config.options import FRAMES
from svea.config.parts import MOST_PICTURES, PLAIN, Parts
from svea.core.errors import NumericsError, UserError
from svea.core.given import find_factory
from svea.envs.dmc import read_choice, read_vector, warn_of_render_without_mode
from svea.envs.looks import EPISODES_VERSION, Mode, compose
from svea.envs.looks.pictures import PictureMode
from svea.envs.looks.varied import varied
from svea.envs.stacking import CHANNELS, Settings, StackedEpisode

_COUNTS = (1, 3, CHANNELS)
_LOOKS = 1  # what the mode draws has a stream of its own: the episode does not change with it
_NEEDED = (
    "svea learns from single pictures, which it stacks itself: a Box from 0 to 255 (or floats from "
    "0 to 1) shaped (H, W), (H, W, C) or (C, H, W), where C is 1, 3, or 9 for three stacked RGB "
    "frames; or from a Dict of one or two such pictures and one vector of floats. "
)
_CURE = (
    "Choose or change with gymnasium.wrappers.TransformObservation, or draw the environment "
    "(render_mode='rgb_array') with gymnasium.wrappers.AddRenderObservation."
)


class AdaptedEnv(gym.Wrapper[np.ndarray, Any, Any, Any]):
    """An environment whose observations are stacked RGB frames of one size, uint8, oldest first.

    Where the adapted one shows a dictionary, this one does: such a stack for each picture, and the
    vector as it is.

    Built by `make_env`, which checks the arguments. What the environment must do by itself: draw
    everything random from the seed given to `reset`, so that an episode is a function of its seed
    and its actions. Resuming a run relies on it.
    """

    def __init__(
        self, env: gym.Env[Any, Any], mode: Mode, settings: Settings, task: str = "user:env"
    ) -> None:
        super().__init__(env)
        self._task = task
        self.parts, layouts = read_parts(env.observation_space)
        self._cameras = [Camera(layout) for layout in layouts]
        self._settings, self._episode = settings, StackedEpisode(settings, self.parts)
        self._began = False
        mode.image_size = self._size = settings.image_size
        mode.pictures = max(1, len(self.parts.pictures))
        self._train = mode
        self.mode = mode if isinstance(mode, PictureMode) else None  # in train nothing changes
        self._looks = np.random.default_rng(settings.seed)  # for episodes without a seed
        self.render_size = settings.render_size
        self.observation_space = self._episode.space
        self.action_space = unit_actions(env.action_space)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; the very first one without a seed has that of `make_env`, if any.

        `options={"variation": {"picture.noise": 0.1}}` is taken here (`svea.config.factors`), and
        all other options go to the environment.
        """
        if (look := varied(self.mode or self._train, self._task, options)) is not self._train:
            assert isinstance(look, PictureMode)
            self.mode = look
        passed = {k: v for k, v in (options or {}).items() if k != "variation"}
        seed = self._episode.choose_seed(seed)
        theirs = None if options is None else passed
        observation, info = self.env.reset(seed=seed, options=theirs)
        for camera in self._cameras:
            camera.before = None
        if self.mode is not None:
            self.mode.choose(seed, options or {})
            draws = self._looks.integers(2**63) if seed is None else seed
            self.mode.begin(None, np.random.default_rng([int(draws), _LOOKS]))
        pictures, vector = self._read(observation)
        self._began = True
        seen = self._episode.begin(*map(self._show, pictures), vector=vector)
        return seen, self._info(info)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Repeat the action, sum its rewards, and show the picture it led to."""
        self._episode.check_running()
        theirs = self._rescale(action)
        total = 0.0
        for _ in range(self._settings.action_repeat):
            observation, reward, terminated, truncated, info = _five(self.env.step(theirs))
            pictures, vector = self._read(observation)
            total += float(reward)
            truncated = self._episode.count_frame() or bool(truncated)
            if terminated or truncated:
                self._episode.running = False
                break
        if not np.isfinite(total):
            raise NumericsError(f"the environment's reward is {total}, which is not finite.")
        if self.mode is not None:
            self.mode.update(None)
        seen = self._episode.push(*map(self._show, pictures), vector=vector)
        return seen, total, bool(terminated), truncated, self._info(info)

    @property
    def provenance(self) -> dict[str, Any]:
        """What data the pictures are made with: the environment's own, and the mode's."""
        made_by = {"renderer": "the environment's own", "episodes": EPISODES_VERSION}
        own = made_by | getattr(self.env.unwrapped, "provenance", {})
        return own if self.mode is None else own | self.mode.provenance

    def _info(self, info: dict[str, Any]) -> dict[str, Any]:
        shown = {} if self.mode is None else self.mode.info
        return info | {"frames": self._episode.frames} | shown

    @property
    def render_mode(self) -> str | None:  # type: ignore[override]  # as in Gymnasium's Wrapper
        """What `render` returns, whatever the adapted environment does by itself."""
        return self._settings.render_mode

    def render(self) -> Any:
        """The environment's own picture if it has one, else the newest that the agent saw."""
        if self.render_mode is None:
            warn_of_render_without_mode()
            return None
        if self.env.render_mode == "rgb_array":
            drawn: Any = self.env.render()
            return drawn if self.mode is None else compose(self.mode, np.asarray(drawn))
        enlarge = max(1, self.render_size // self._size)
        picture = np.concatenate(self._episode.newest, axis=2).transpose(1, 2, 0)
        return picture.repeat(enlarge, axis=0).repeat(enlarge, axis=1)

    def _read(self, observation: Any) -> tuple[list[np.ndarray], np.ndarray | None]:
        """The newest pictures, `(H, W)` or `(H, W, C)` uint8, and the vector if there is one."""
        parts = self.parts
        if not parts.pictures:
            return [self._cameras[0].newest(observation)], None
        parts.check_names(observation)
        shown = zip(self._cameras, parts.pictures, strict=True)
        pictures = [camera.newest(observation[name]) for camera, name in shown]
        if not parts.vector:
            return pictures, None
        try:
            return pictures, parts.read_vector(observation)
        except NumericsError as error:
            if self._began:
                raise
            raise UserError(f"at its first reset, {error}; allowed: finite numbers.") from None

    def _show(self, picture: np.ndarray) -> np.ndarray:
        """A picture for the stack: of its size, and in the mode's look."""
        small = self._resize(picture)
        if self.mode is None:
            return small
        colour = np.broadcast_to(small, (3, self._size, self._size)).transpose(1, 2, 0)
        return compose(self.mode, np.ascontiguousarray(colour)).transpose(2, 0, 1)

    def _resize(self, picture: np.ndarray) -> np.ndarray:
        """Scale a picture to the stack's size, `(3, size, size)`, or `(1, size, size)` if grey.

        Bilinear, and smoothed where it shrinks; other aspect ratios are stretched to the square.
        """
        from PIL import Image

        size = self._size, self._size
        if picture.shape[:2] != size:
            picture = np.asarray(Image.fromarray(picture).resize(size, Image.Resampling.BILINEAR))
        return picture.transpose(2, 0, 1) if picture.ndim == 3 else picture[None]

    def _rescale(self, action: Any) -> Any:
        theirs = self.env.action_space
        if isinstance(theirs, gym.spaces.Discrete):
            return theirs.start + read_choice(action, int(theirs.n))
        assert isinstance(theirs, gym.spaces.Box)
        low, high = theirs.low.astype(np.float64), theirs.high.astype(np.float64)
        unit = read_vector(action, self.action_space).reshape(theirs.shape)
        values = (low + high) / 2 + unit * (high - low) / 2  # exact where the range is [-1, 1]
        return np.clip(values.astype(theirs.dtype), theirs.low, theirs.high)  # rounding overshoots


def call_factory(path: str, seed: int | None, image_size: int) -> gym.Env[Any, Any]:
    """Make a user's environment by its name, with what its function takes of the settings."""
    factory = find_factory(path)
    if not callable(factory):
        raise UserError(f"task {path!r} is {type(factory).__name__}; it must be a function.")
    parameters = inspect.signature(factory).parameters
    takes_all = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    # A function that takes a seed gets a number: made without one, environments are to differ.
    settings = {"seed": secrets.randbits(31) if seed is None else seed, "image_size": image_size}
    taken = {name: settings[name] for name in settings if takes_all or name in parameters}
    try:
        inspect.signature(factory).bind(**taken)
    except TypeError as error:
        raise UserError(
            f"task {path!r} gets seed and image_size if it has such parameters: {error}; give the "
            "others defaults."
        ) from None
    env = factory(**taken)
    if not isinstance(env, gym.Env):
        raise UserError(f"task {path!r} returned {type(env).__name__}, not a gymnasium.Env.")
    return env


@dataclass(frozen=True)
class Layout:
    """How an environment's pictures lie in memory."""

    shape: tuple[int, ...]
    channel_axis: int | None  # 0 or 2; None: a grey picture without an axis of channels
    scale: float | None  # from the environment's floats to bytes; None: they are bytes

    @property
    def channels(self) -> int:
        """1 for grey, 3 for RGB, 9 for three stacked RGB frames."""
        return 1 if self.channel_axis is None else self.shape[self.channel_axis]

    def read(self, observation: Any) -> np.ndarray:
        """A picture as `(H, W, C)` uint8, or `(H, W)` if it is grey."""
        picture = np.asarray(observation)
        kind = np.uint8 if self.scale is None else np.floating
        if picture.shape != self.shape or not np.issubdtype(picture.dtype, kind):
            raise UserError(
                f"the environment showed {picture.dtype} shaped {picture.shape}, but its "
                f"observation space has {'uint8' if self.scale is None else 'floats'} shaped "
                f"{self.shape}: make the two agree."
            )
        if self.scale is not None:
            rounded = np.rint(picture * self.scale)
            if not (rounded.min() >= 0 and rounded.max() <= 255):  # written so that NaN fails
                raise NumericsError(
                    f"the environment showed values from {picture.min():g} to {picture.max():g}; "
                    f"its observation space allows 0 to {255 / self.scale:g}."
                )
            picture = rounded.astype(np.uint8)
        if self.channel_axis is None:
            return picture
        moved = np.moveaxis(picture, self.channel_axis, -1)
        return moved[..., 0] if self.channels == 1 else moved


@dataclass
class Camera:
    """One of the pictures that an environment shows."""

    layout: Layout
    before: np.ndarray | None = None
    """The stack that it showed last, where the environment stacks by itself."""

    def newest(self, observation: Any) -> np.ndarray:
        """The newest picture, `(H, W)` or `(H, W, C)` uint8, of what the environment showed."""
        picture = self.layout.read(observation)
        if self.layout.channels < CHANNELS:
            return picture
        # The replay stores single frames and stacks them itself: a stack of another kind would be
        # acted on but never learned from.
        before = self.before
        expected = np.tile(picture[..., -3:], FRAMES) if before is None else before[..., 3:]
        if not np.array_equal(picture[..., : expected.shape[-1]], expected):
            raise UserError(
                "the environment's observations have 9 channels but are not a stack of three "
                "RGB frames (oldest first; at reset three times the first). Return single frames: "
                "svea stacks them."
            )
        self.before = picture.copy()  # environments may draw into the same array again
        return picture[..., -3:]


def _five(step: Any) -> Any:
    """What `step` returned; the four values of old Gym cannot tell the end of time from the end."""
    if isinstance(step, tuple | list) and len(step) == 5:
        return step
    what = f"{len(step)} values" if isinstance(step, tuple | list) else type(step).__name__
    raise UserError(
        f"the environment's step returned {what}; Gymnasium's returns five: observation, reward, "
        "terminated, truncated, info. Return terminated and truncated in place of done."
    )


def read_parts(space: gym.Space[Any]) -> tuple[Parts, list[Layout]]:
    """What an observation space consists of, and how its pictures lie in memory."""
    if not isinstance(space, gym.spaces.Dict):
        if layout := find_layout(space):
            return PLAIN, [layout]
        raise UserError(f"its observation space is {space}; {_NEEDED}{_CURE}")
    layouts = {name: layout for name, part in space.items() if (layout := find_layout(part))}
    vectors = {name: part for name, part in space.items() if name not in layouts}
    if unknown := [name for name, part in vectors.items() if not _is_vector(part)]:
        part = f"the part {unknown[0]!r} of its observations is {space[unknown[0]]}"
        raise UserError(f"{part}; {_NEEDED}{_CURE}")
    if not 1 <= len(layouts) <= MOST_PICTURES or len(vectors) > 1:
        many = f"its observations have {len(layouts)} pictures and {len(vectors)} vectors"
        raise UserError(f"{many} ({', '.join(map(repr, space))}); {_NEEDED}{_CURE}")
    (name, vector), *_ = [*vectors.items(), ("", None)]
    numbers = 0 if vector is None else int(vector.shape[0])  # type: ignore[index]
    return Parts(tuple(layouts), name, numbers), [*layouts.values()]


def _is_vector(space: gym.Space[Any]) -> bool:
    is_floats = isinstance(space, gym.spaces.Box) and np.issubdtype(space.dtype, np.floating)
    return is_floats and len(space.shape or ()) == 1 and space.shape != (0,)


def find_layout(space: gym.Space[Any]) -> Layout | None:
    """How pictures of an observation space lie in memory; None if it is not one of pictures."""
    shape = space.shape or ()
    axes = [axis for axis in (0, 2) if len(shape) == 3 and shape[axis] in _COUNTS]
    if isinstance(space, gym.spaces.Box) and (len(shape) == 2 or len(axes) == 1):
        floats = np.issubdtype(space.dtype, np.floating)
        top = float(space.high.flat[0])
        allowed = (1, 255) if floats else (255,) if space.dtype == np.uint8 else ()
        if (space.low == 0).all() and (space.high == top).all() and top in allowed:
            return Layout(shape, axes[0] if axes else None, 255 / top if floats else None)
    return None


def unit_actions(space: gym.Space[Any]) -> gym.Space[Any]:
    """The action space that an agent sees: flat and in [-1, 1], or discrete and counted from 0."""
    if isinstance(space, gym.spaces.Discrete):
        return gym.spaces.Discrete(int(space.n))
    is_box = isinstance(space, gym.spaces.Box) and space.is_bounded()
    if is_box and np.issubdtype(space.dtype, np.floating):
        return gym.spaces.Box(-1.0, 1.0, (int(np.prod(space.shape or ())),), np.float32)
    raise UserError(
        f"its action space is {space}; allowed are a Box of floats with finite bounds, and "
        "Discrete. gymnasium.wrappers.TransformAction(env, lambda action: action, space) gives it "
        "another space."
    )
