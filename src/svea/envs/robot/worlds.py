"""How the robot's world looks: the training look, and 25 test worlds that training never shows.

A world is a stored draw: camera position, patterns and colours of table, floor, wall, sky and arm,
and the light. `worlds.json` holds them, `draw` made them, and a test compares the two.
"""

from __future__ import annotations

import colorsys
import functools
import hashlib
import json
import os
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from svea.core.errors import UserError
from svea.envs.looks import Mode, Scene
from svea.envs.looks.colors import texture

WORLDS = 25
FIRST_SEED = 1000
"""World k is drawn from seed 1000 + k."""

SURFACES = ("table", "floor", "wall", "skybox", "arm")
PATTERNS = ("flat", "checker", "gradient", "noise")

CAMERA = (1.25, 0.70, 0.72)
"""Where the training camera stands, in metres."""

_CAMERA_SPREAD = (0.10, 0.25, 0.10)  # metres to either side of it
_LEAST_FROM_RED = 40.0  # degrees of hue: nothing but the mark is red
_CHECKS = 8  # along a side of a texture


Triple = tuple[float, float, float]


@dataclass(frozen=True)
class Pattern:
    """What covers a surface: two colours (RGB from 0 to 1) in one of the `PATTERNS`."""

    kind: str
    colors: tuple[Triple, Triple]
    seed: int

    def paint(self, height: int, width: int) -> np.ndarray:
        """The texture's pixels, `(height, width, 3)` uint8."""
        y, x = np.mgrid[:height, :width]
        mix: Any = {
            "flat": lambda: np.zeros((height, width)),
            "checker": lambda: (x * _CHECKS // width + y * _CHECKS // width) % 2,
            "gradient": lambda: y / (height - 1),
            "noise": lambda: np.random.default_rng(self.seed).random((height, width)),
        }[self.kind]()
        first, second = np.array(self.colors)
        painted = first + (second - first) * mix[..., None]
        return (255 * painted).round().astype(np.uint8)


@dataclass(frozen=True)
class World:
    """One test world."""

    camera: Triple
    """Position in metres, x away from the base, y to its left, z above the table."""
    surfaces: dict[str, Pattern]
    light_direction: Triple
    ambient: Triple
    diffuse: Triple
    specular: Triple
    shadow: bool


def draw(seed: int) -> World:
    """Draw a world; rounded, so that what is stored is what was drawn."""
    rng = np.random.default_rng(seed)

    def some(low: Any, high: Any, size: int | None = None) -> Any:
        return np.round(rng.uniform(low, high, size), 3).tolist()

    spread = np.array(_CAMERA_SPREAD)
    camera = tuple(some(CAMERA - spread, CAMERA + spread, 3))
    surfaces = {name: _draw_pattern(rng) for name in SURFACES}
    lean = rng.normal(0.0, 0.35, 2)
    return World(
        camera=camera,
        surfaces=surfaces,
        light_direction=(*np.round(lean, 3).tolist(), -1.0),
        ambient=tuple(some(0.0, 0.4, 3)),
        diffuse=tuple(some(0.3, 0.9, 3)),
        specular=tuple(some(0.0, 0.6, 3)),
        shadow=bool(rng.random() < 0.5),
    )


def _draw_pattern(rng: np.random.Generator) -> Pattern:
    """Draw a kind and two colours, of any hue but the mark's."""
    kind = PATTERNS[int(rng.integers(len(PATTERNS)))]
    colors = []
    for _ in range(2):
        hue = rng.uniform(_LEAST_FROM_RED, 360 - _LEAST_FROM_RED) / 360
        red, green, blue = colorsys.hsv_to_rgb(hue, rng.uniform(0, 0.9), rng.uniform(0.15, 0.95))
        colors.append((round(red, 3), round(green, 3), round(blue, 3)))
    return Pattern(kind, (colors[0], colors[1]), int(rng.integers(2**31)))


@functools.cache
def stored() -> tuple[World, ...]:
    """The 25 worlds of `worlds.json`."""
    worlds = json.loads(_file().read_text())
    return tuple(
        World(**world | {"surfaces": {n: Pattern(**p) for n, p in world["surfaces"].items()}})
        for world in worlds
    )


def _file() -> Any:
    """Where the worlds are stored."""
    return resources.files("svea.envs.robot").joinpath("worlds.json")


class RobotMode(Mode):
    """The training look of the robot tasks."""

    def __init__(
        self,
        name: str = "train",
        data_dir: Path | None = None,
        *,
        menagerie: str | os.PathLike[str] | None = None,
    ) -> None:
        """Choose how the arm is drawn.

        Args:
            name: The mode's name.
            data_dir: Not used: these modes need no data.
            menagerie: A folder of MuJoCo Menagerie, or `auto`, to draw the arm with its meshes; our
                own primitive shapes when not given. The physics is the same.
        """
        super().__init__(name)
        self.menagerie = menagerie

    @property
    def provenance(self) -> dict[str, Any]:
        """How the arm is drawn."""
        return super().provenance | {"arm": "primitives" if self.menagerie is None else "menagerie"}


class RobotTestMode(RobotMode):
    """The 25 test worlds, one per episode."""

    def __init__(
        self,
        name: str = "test",
        data_dir: Path | None = None,
        *,
        world: int | None = None,
        menagerie: str | os.PathLike[str] | None = None,
    ) -> None:
        """Choose a world, or all.

        Args:
            name: The mode's name.
            data_dir: Not used: the worlds come with svea.
            world: Show only this one, from 0 to 24. Without it, `reset(options={"world": k})`
                chooses, else `reset(seed=s)` shows world s mod 25, and a reset without a seed the
                next one.
            menagerie: As in `RobotMode`.
        """
        super().__init__(name, data_dir, menagerie=menagerie)
        self._only = None if world is None else check_world(world)
        self._world = -1

    @property
    def provenance(self) -> dict[str, Any]:
        """Which worlds, and the hash of their file."""
        which = {"worlds": WORLDS} if self._only is None else {"world": self._only}
        digest = hashlib.sha256(_file().read_bytes()).hexdigest()
        return super().provenance | {"source": "stored"} | which | {"sha256": digest}

    @property
    def info(self) -> dict[str, Any]:
        """The world on show."""
        return {"world": self._world}

    def choose(self, seed: int | None, options: dict[str, Any]) -> None:
        """Take the world that is asked for, else the seed's, else the next."""
        if self._only is not None:
            self._world = self._only
        elif options.get("world") is not None:
            self._world = check_world(options["world"])
        else:
            self._world = (self._world + 1 if seed is None else seed) % WORLDS

    def begin(self, scene: Scene, rng: np.random.Generator) -> None:
        """Dress the scene in the chosen world."""
        import mujoco

        model, world = scene.model, stored()[self._world]
        for name, pattern in world.surfaces.items():
            index = model.tex(name).id
            pixels = texture(model, index)
            pixels[...] = pattern.paint(*pixels.shape[:2])
            scene.renderer.upload_texture(index)
        model.cam_pos[scene.camera] = world.camera
        sun = model.light("sun").id
        direction = np.array(world.light_direction)
        model.light_dir[sun] = direction / np.linalg.norm(direction)
        model.light_ambient[sun] = world.ambient
        model.light_diffuse[sun] = world.diffuse
        model.light_specular[sun] = world.specular
        model.light_castshadow[sun] = world.shadow
        mujoco.mj_camlight(model, scene.data)


def check_world(value: Any) -> int:
    """Return the number of a world, if it is one."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise UserError(f"world is {value!r}; it must be an integer from 0 to {WORLDS - 1}.")
    if not 0 <= value < WORLDS:
        raise UserError(f"world is {value}; allowed are 0 to {WORLDS - 1}.")
    return int(value)
