"""How the robot's world looks: the training look, and 25 test worlds that training never shows.

A world is a stored draw: camera position, patterns and colours of table, floor, wall, sky and arm,
and the light. `worlds.json` holds them; tests/envs/test_robot_worlds.py draws them again.
"""

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np

from svea.config.modes import WORLDS, check_number
from svea.core.files import sha256
from svea.envs.looks import Mode, Scene, WorldsMode
from svea.envs.looks.colors import texture

PATTERNS = ("flat", "checker", "gradient", "noise")

CAMERA = (1.25, 0.70, 0.72)  # where the training camera stands, in metres

_FILE = resources.files("svea.envs.robot").joinpath("worlds.json")
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

    camera: Triple  # position in metres, x away from the base, y to its left, z above the table
    surfaces: dict[str, Pattern]
    light_direction: Triple
    ambient: Triple
    diffuse: Triple
    specular: Triple
    shadow: bool


@functools.cache
def stored() -> tuple[World, ...]:
    """The 25 worlds of `worlds.json`."""
    worlds = json.loads(_FILE.read_text())
    return tuple(
        World(**world | {"surfaces": {n: Pattern(**p) for n, p in world["surfaces"].items()}})
        for world in worlds
    )


ARM = {"arm": "primitives"}  # how the arm is drawn, for provenance


class RobotMode(Mode):
    """The training look of the robot tasks."""

    made_with: Mapping[str, Any] = {"source": "none", **ARM}


class RobotTestMode(WorldsMode):
    """The 25 test worlds, one per episode; a reset without a seed shows the next one."""

    def __init__(self, *, world: int | None = None) -> None:
        made_with = {**ARM, "source": "stored", "sha256": sha256(_FILE.read_bytes())}
        super().__init__("test", range(WORLDS), **made_with)
        self._only, self._world = None, -1
        if world is not None:
            self._only = check_number("test", world)
            self.made_with = {**made_with, "world": self._only}

    def choose(self, seed: int | None, options: dict[str, Any]) -> None:
        """Take the only world, else the requested one, the seed's, or the next."""
        following = self._world + 1 if seed is None else seed
        super().choose(following, options if self._only is None else {"world": self._only})

    def begin(self, scene: Scene, rng: np.random.Generator) -> None:
        """Apply the chosen world to the scene."""
        import mujoco

        model, world = scene.model, stored()[self.next_world(rng)]
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
