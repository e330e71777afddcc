"""`color_easy` and `color_hard`: floor, sky and agent in colours never seen in training.

The colour modes of DMControl-GB (https://github.com/nicklashansen/dmcontrol-generalization-benchmark):
every episode has one of 100 colour settings, which its seed chooses. The settings are the
benchmark's own; `colors.json` holds them. A setting gives the two colours of the checkered floor,
the agent's colour and the sky's: normal around the suite's own with a standard deviation of 0.1
(easy) or 0.2 (hard), clipped to [0, 1]; the floor's second colour is its first plus 0.1. The
floor's grid lines, the stars, and the materials of targets, balls, rails and light stay. A domain
shows what it has of these: the dog wears a skin, and the manipulator and stacker stand before a
wall, none of which is recoloured.

The benchmark edits the XML and compiles the model again at every reset. Here the same bytes are
written into the compiled model's textures, of the sky's six sides only where the camera can see
them, and uploaded.
"""

import functools
import json
from collections.abc import Sequence
from importlib import resources
from typing import Any

import numpy as np

from svea.core.errors import UserError
from svea.core.files import sha256
from svea.envs.looks import Scene, WorldsMode

GRID_LINE = (0.2, 0.3, 0.4)

Setting = dict[str, list[float]]


class ColorMode(WorldsMode):
    """Shows one colour setting per episode."""

    def __init__(self, name: str) -> None:
        self.settings = load_settings(name)
        count, digest = len(self.settings), sha256(json.dumps(self.settings).encode())
        super().__init__(name, range(count), source="dmcgb", settings=count, sha256=digest)

    def prepare(self, model: Any, domain: str) -> None:
        """Find what will be recoloured, and where the sky has stars."""
        try:
            self._grid, self.sky = model.tex("grid").id, model.tex("skybox").id
            self._agent = model.mat("self").id
        except KeyError as error:
            raise UserError(
                f"mode {self.name!r} recolours the textures grid and skybox and the material self, "
                f"and this model lacks one: {error.args[0]}"
            ) from error
        # Only stars have a full red channel in the compiled sky, and MuJoCo always puts them at the
        # same places: its generator has a fixed seed.
        self._stars = stars_in(texture(model, self.sky))

    @property
    def setting(self) -> Setting:
        """The colours of the running episode."""
        return self.settings[self._world]

    def begin(self, scene: Scene, rng: np.random.Generator) -> None:
        """Apply the episode's setting."""
        self.next_world(rng)
        self.apply(scene, self.setting)

    def apply(self, scene: Scene, setting: Setting) -> None:
        """Write a setting into the model and upload what can be seen of the two textures."""
        model = scene.model
        model.mat_rgba[self._agent, :3] = setting["self_rgb"]
        fill_checker(texture(model, self._grid), setting["grid_rgb1"], setting["grid_rgb2"])
        scene.renderer.upload_texture(self._grid)
        faces = scene.renderer.visible_sky_faces()
        self.fill_sky(texture(model, self.sky), setting["skybox_rgb"], faces)
        scene.renderer.upload_texture(self.sky, faces)

    def fill_sky(self, pixels: np.ndarray, color: Sequence[float], faces: Sequence[int]) -> None:
        """Paint sides of the sky, and all stars."""
        fill_sky(pixels, color, faces)
        pixels.reshape(-1, 3)[self._stars] = 255


def stars_in(sky: np.ndarray) -> np.ndarray:
    """Which pixels of a sky are stars."""
    return np.flatnonzero(sky[..., 0] == 255)


@functools.cache
def load_settings(name: str) -> list[Setting]:
    """The 100 colour settings of a mode: four colours each, with channels in [0, 1]."""
    tables = json.loads(resources.files("svea.envs.looks").joinpath("colors.json").read_text())
    return [dict(zip(tables["keys"], row, strict=True)) for row in tables[name]]


def texture(model: Any, index: int) -> np.ndarray:
    """Return a writable view of one texture of a compiled model, `(height, width, channels)`."""
    height, width = int(model.tex_height[index]), int(model.tex_width[index])
    channels, start = int(model.tex_nchannel[index]), int(model.tex_adr[index])
    flat = model.tex_data[start : start + height * width * channels]
    return flat.reshape(height, width, channels)


def fill_checker(pixels: np.ndarray, first: Sequence[float], second: Sequence[float]) -> None:
    """Fill a texture as MuJoCo's builtin `checker` with `mark="edge"`: 2 x 2 fields, a border."""
    half_y, half_x = pixels.shape[0] // 2, pixels.shape[1] // 2
    pixels[:half_y, :half_x] = pixels[half_y:, half_x:] = _to_bytes(first)
    pixels[:half_y, half_x:] = pixels[half_y:, :half_x] = _to_bytes(second)
    pixels[[0, -1], :] = pixels[:, [0, -1]] = _to_bytes(GRID_LINE)


def fill_sky(pixels: np.ndarray, color: Sequence[float], faces: Sequence[int]) -> None:
    """Fill sides of a skybox as MuJoCo's builtin `gradient`: a colour above, black below."""
    width = pixels.shape[1]
    cube = pixels.reshape(6, width, width, 3)
    sides, up, down = _sky_weights(width)
    scratch = np.empty((width, width))
    done: dict[int, int] = {}  # the four sides are alike
    for face in faces:
        weight = {2: up, 3: down}.get(face, sides)
        if id(weight) in done:
            cube[face] = cube[done[id(weight)]]
            continue
        done[id(weight)] = face
        for channel in range(3):  # one at a time: three times faster than whole pixels
            np.multiply(weight, color[channel], out=scratch)
            scratch *= 255.0
            cube[face, :, :, channel] = scratch  # cut off, as MuJoCo does


@functools.cache
def _sky_weights(width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Compute the weight of the zenith's colour on a side face, the upper and the lower face."""
    x = 2.0 * np.arange(width) / (width - 1) - 1.0
    y = 1.0 - 2.0 * np.arange(width)[:, None] / (width - 1)
    distance = np.sqrt(1.0 + x * x + y * y)  # of the point on the cube's face from its centre
    side = np.arcsin(y / distance) / (0.5 * np.pi)  # elevation, 1 at the zenith
    up = 1.0 - np.arccos(1.0 / distance) / (0.5 * np.pi)
    return _soft_step(side), _soft_step(up), 1.0 - _soft_step(up)


def _soft_step(elevation: np.ndarray) -> np.ndarray:
    """MuJoCo's soft step from 0 at the nadir (-1) to 1 at the zenith (1)."""
    return 0.5 * (1.0 + elevation / np.sqrt(1.0 + elevation * elevation) / (1.0 / np.sqrt(2.0)))


def _to_bytes(color: Sequence[float]) -> np.ndarray:
    """Convert channels in [0, 1] to bytes as MuJoCo does: cut off, not rounded."""
    return (255.0 * np.asarray(color)).astype(np.uint8)
