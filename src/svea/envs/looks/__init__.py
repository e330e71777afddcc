"""How an environment looks: `Mode`, the base of all looks, and its provenance in words."""

import functools
import importlib.metadata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from svea.core.errors import UserError
from svea.data.clips import DMCGB, PROCEDURAL, source_of
from svea.envs.rendering import Renderer

EPISODES_VERSION = 1
"""Part of every result's provenance: what an episode's outcome depends on in this code (pictures of
modes, resampled videos, physics steps, rewards). A change of any needs another number, and so do
episodes in results; tests/envs/test_golden.py notices. Moving code changes nothing."""


@dataclass(frozen=True)
class Scene:
    """What a mode may look at and change: the compiled model, its state and the renderer."""

    model: Any  # the `mujoco.MjModel`; all but textures is restored before every episode
    data: Any  # the `mujoco.MjData` of the running episode
    renderer: Renderer  # for `renderer.upload_texture(index)` after a change of `model.tex_data`
    camera: int  # the index of the camera that draws


class Mode:
    """How an environment looks: the training look, and the base class of all test looks.

    A mode changes pictures, never physics or rewards. Its hooks are called in this order:

        prepare(model, domain)  once, before the textures are first uploaded
        choose(seed, options)   every reset, with what the caller of `reset` gave
        begin(scene, rng)       every reset, when the episode's first state is ready
        advance(scene)          after every simulator step (several per decision)
        update(scene)           after every decision, before its picture is drawn
        compose(picture)        every picture, before it is stacked

    Everything random must be drawn from the `rng` of `begin`, and `begin` must set everything that
    the last episode may have changed: except textures, the model is as it was compiled.
    """

    image_size = 84
    """Side of the pictures that agents see; the environment sets it before `prepare`."""

    pictures = 1
    """How many pictures an observation has; the environment sets it, too."""

    made_with: Mapping[str, Any] = {"source": "none"}
    """What data the pictures are made with, as far as it stays the same."""

    def __init__(self, name: str = "train") -> None:
        self.name = name

    @property
    def provenance(self) -> dict[str, Any]:
        """What data the pictures are made with, in values that JSON can hold."""
        return {"mode": self.name, **self.made_with}

    @property
    def info(self) -> dict[str, Any]:
        """What the running episode's `info` says about the mode."""
        return {}

    def prepare(self, model: Any, domain: str) -> None:
        """Change the compiled model once, for example the size of a texture."""

    def choose(self, seed: int | None, options: dict[str, Any]) -> None:
        """Take the options of `reset`; most modes have none."""

    def begin(self, scene: Scene, rng: np.random.Generator) -> None:
        """Change the scene for a new episode."""

    def advance(self, scene: Scene) -> None:
        """Move what moves by itself, one simulator step on."""

    def update(self, scene: Scene) -> None:
        """Show what has moved since the last picture."""

    def compose(self, picture: np.ndarray) -> np.ndarray:
        """Return the picture to show, given the one drawn: `(size, size, 3)` uint8, any size."""
        return picture


class WorldsMode(Mode):
    """A mode of several worlds, one per episode: a colour setting, a clip.

    `reset(seed=s)` shows world s modulo their number, which is how evaluations show them in turn.
    `reset(options={"world": w})` chooses one by its number or name. A reset without either draws.
    """

    def __init__(self, name: str, worlds: Sequence[int | str], **made_with: Any) -> None:
        """Name the mode and its worlds, for records, and what else its provenance says."""
        super().__init__(name)
        self.worlds, self.made_with = tuple(worlds), {"worlds": len(worlds), **made_with}
        self._chosen: int | None = None
        self._world = 0

    @property
    def info(self) -> dict[str, Any]:
        """Which world the episode shows."""
        return {"world": self.worlds[self._world]}

    def choose(self, seed: int | None, options: dict[str, Any]) -> None:
        """Take the requested world, else the seed's."""
        wanted = options.get("world")
        if wanted is not None:
            self._chosen = self._number(wanted)
        else:
            self._chosen = None if seed is None else seed % len(self.worlds)

    def begin(self, scene: Scene, rng: np.random.Generator) -> None:
        """Take the episode's world, and apply it as every update does."""
        self.next_world(rng)
        self.update(scene)

    def next_world(self, rng: np.random.Generator) -> int:
        """The number of the world to show now: the chosen one, else one that is drawn."""
        drawn = int(rng.integers(len(self.worlds)))  # always, so that later draws do not depend
        self._world = drawn if self._chosen is None else self._chosen
        return self._world

    def _number(self, world: Any) -> int:
        is_number = isinstance(world, int | np.integer) and not isinstance(world, bool)
        if is_number and 0 <= world < len(self.worlds):
            return int(world)
        if not is_number and world in self.worlds:
            return self.worlds.index(world)
        names = "" if isinstance(self.worlds[0], int) else f", or a name such as {self.worlds[0]!r}"
        raise UserError(
            f"world is {world!r}; mode {self.name!r} has 0 to {len(self.worlds) - 1}{names}."
        )


def writable_arrays(model: Any) -> dict[str, np.ndarray]:
    """The arrays of a compiled model that a task or mode may write, by name."""
    values = ((name, getattr(model, name)) for name in dir(model) if not name.startswith("_"))
    arrays = ((name, value) for name, value in values if isinstance(value, np.ndarray))
    return {name: array for name, array in arrays if array.size and array.flags.writeable}


@functools.cache
def simulator() -> dict[str, Any]:
    """What simulates here, for provenance."""
    return {name: importlib.metadata.version(name) for name in ("mujoco", "dm_control")}


def provenance_of(env: Any) -> dict[str, Any]:
    """What data an environment's pictures are made with; nothing where it does not say so."""
    return env.get_wrapper_attr("provenance") if env.has_wrapper_attr("provenance") else {}


def compose(mode: Mode, picture: np.ndarray) -> np.ndarray:
    """The picture that a mode makes of the one drawn; a mode that makes none is named."""
    shown = mode.compose(picture)
    if not isinstance(shown, np.ndarray) or (shown.shape, shown.dtype) != (picture.shape, np.uint8):
        got = f"{getattr(shown, 'dtype', type(shown).__name__)} {getattr(shown, 'shape', '')}"
        raise UserError(
            f"mode {mode.name!r}: compose returned {got.strip()}; it must return a picture like "
            f"the one given, uint8 {picture.shape}."
        )
    return shown


def describe(provenance: dict[str, Any]) -> str:
    """Say in a few words what an environment's pictures are made with.

    >>> describe({"mode": "video_easy", "source": "dmcgb", "clips": 6, "of": 10, "identified": 6})
    'video_easy (6 of 10 clips)'
    >>> describe({"mode": "color_hard", "source": "dmcgb", "settings": 100})
    'color_hard (dmcgb)'
    """
    name, source = provenance["mode"], source_of(provenance)
    if "intensity" in provenance:
        name = f"{name}:{provenance['intensity']:g}"
    if "world" in provenance:
        name = f"{name}:{provenance['world']}"
    if source in ("none", "stored"):
        return name
    if "of" in provenance:
        marked = source.removeprefix(DMCGB) if source.startswith(DMCGB) else ""
        return f"{name} ({provenance['clips']} of {provenance['of']} clips{marked})"
    if "clips" in provenance and source != PROCEDURAL:
        return f"{name} ({provenance['clips']} clips of {source})"
    return f"{name} ({source})"
