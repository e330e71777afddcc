"""What the program for layers needs to know about several pictures, gathered from their scenes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from svea.envs.rendering import cameras
from svea.envs.rendering.scenes import (
    DIRECTIONAL,
    MOST_LIGHTS,
    SPOT,
    SceneReader,
    all_cameras,
    all_lights,
    all_shapes,
)
from svea.envs.rendering.shaders import LIGHT_FLOATS, SHAPE_FLOATS
from svea.envs.rendering.shapes import Mesh, cylinder

PLANE, BOX = 0, 6  # mjtGeom
_IS_SHAPE = np.array([True, False, True, True, True, True, True, False])
_A_PLANE_OF_THE_MODEL = 1000


@dataclass
class Run:
    """Shapes that follow each other in a batch, with one mesh and, if it is not 0, one texture."""

    mesh: Mesh
    texture: int
    first: int
    count: int
    mirrors: bool


@dataclass
class Batch:
    """Shapes and lights as the program reads them, and what is drawn with which mesh."""

    shapes: np.ndarray
    lights: np.ndarray
    runs: list[Run]
    skies: list[Run]

    @property
    def mirrors(self) -> bool:
        """Whether anything reflects."""
        return any(run.mirrors for run in self.runs)

    def plain_runs(self) -> Iterator[Run]:
        """Runs for a pass without textures, in which those of one mesh are one."""
        last: Run | None = None
        for run in self.runs:
            if last and last.mesh is run.mesh and last.mirrors == run.mirrors:
                last = Run(run.mesh, 0, last.first, last.count + run.count, run.mirrors)
            else:
                if last:
                    yield last
                last = Run(run.mesh, 0, run.first, run.count, run.mirrors)
        if last:
            yield last


def gather(readers: Sequence[SceneReader]) -> Batch | None:
    """Pictures as a batch, or `None` if MuJoCo has to draw one of them or tasks differ."""
    if any(
        reader.kind != readers[0].kind or not 1 <= reader.light_count <= MOST_LIGHTS
        for reader in readers
    ):
        return None
    found, layers = all_shapes(readers)
    pairs, lights = all_cameras(readers), all_lights(readers)
    there = np.arange(MOST_LIGHTS) < np.array([[reader.light_count] for reader in readers])
    casts = there & (lights["castshadow"] > 0)
    seen = cameras.views(pairs)
    if (
        not len(found)
        or pairs["orthographic"].any()
        or pairs["frustum_width"].any()
        or not (_are_known(lights) | ~there).all()
        or (casts.sum(1) > 1).any()
        or not _can_draw(found, layers, readers, seen.heads).all()
    ):
        return None
    mirrors = _first_mirrors(found, layers)
    # Textures that are equal count as one, which leaves fewer runs.
    alike = all(reader.look == readers[0].look for reader in readers)
    textures = np.stack([(readers[0] if alike else reader).textures for reader in readers])
    textures = textures[layers, found["matid"]]
    mesh = np.where(found["type"] == PLANE, _A_PLANE_OF_THE_MODEL + found["dataid"], found["type"])
    order = np.lexsort([textures, mesh, mirrors])
    found, layers, mirrors = found[order], layers[order], mirrors[order]
    runs = _runs(readers, found, layers, (textures[order], mesh[order], mirrors))
    worlds = _Worlds(seen, found, layers, mirrors, len(readers))
    shadow_light = lights[np.arange(len(readers)), casts.argmax(1)]
    shadows = cameras.light_clips(shadow_light, readers[0].shadow_reach, seen)
    records = np.zeros((len(found) + len(readers), SHAPE_FLOATS), np.float32)
    _write_shapes(records[: len(found)], found, layers, worlds, shadows, readers[0])
    _write_skies(records[len(found) :], seen)
    skies = _skies(readers[:1] if alike else readers, len(found), len(readers) if alike else 1)
    return Batch(records, _light_records(lights, there, worlds), runs, skies)


def _are_known(lights: np.ndarray) -> np.ndarray:
    """Which lights are of kinds that are computed here, and fade by more than a division by 0."""
    fades = (lights["attenuation"] > 0).any(-1)
    return (lights["type"] == DIRECTIONAL) | ((lights["type"] == SPOT) & fades)


def _can_draw(
    found: np.ndarray, layers: np.ndarray, readers: Sequence[SceneReader], heads: np.ndarray
) -> np.ndarray:
    """Which shapes are of kinds that are drawn here."""
    kind, is_plane = found["type"], found["type"] == PLANE
    flat = np.stack([reader.is_flat for reader in readers])[layers, found["matid"]]
    textured = np.stack([reader.textures > 0 for reader in readers])[layers, found["matid"]]
    up = found["mat"][:, 2::3]
    behind = ((heads[layers].astype(np.float32) - found["pos"]) * up).sum(1) < 0
    endless = (found["size"][:, :2] <= 0).any(1)  # moves with the camera, has haze at its horizon
    dull = found["shininess"] <= 0  # 0 to the power of 0, which is whatever a driver makes of it
    return (
        _IS_SHAPE[np.clip(kind, 0, len(_IS_SHAPE) - 1)]
        & (found["rgba"][:, 3] >= 0.995)  # not transparent
        & (found["texcoord"] == 0)
        & flat
        & (is_plane | ~textured)
        & ~(dull & (found["specular"] > 0))
        & ~(is_plane & (behind | endless))
        & ~((kind == BOX) & (found["reflectance"] > 0))
    )


def _first_mirrors(found: np.ndarray, layers: np.ndarray) -> np.ndarray:
    """Which shapes reflect: in each picture the first plane that can, and nothing else."""
    able = np.flatnonzero((found["type"] == PLANE) & (found["reflectance"] > 0))
    _, first = np.unique(layers[able], return_index=True)
    made = np.zeros(len(found), bool)
    made[able[first]] = True
    return made


def _runs(
    readers: Sequence[SceneReader],
    found: np.ndarray,
    layers: np.ndarray,
    keys: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> list[Run]:
    """Shapes in the order of their keys (texture, mesh, mirror), divided where one changes."""
    textures, _, mirrors = keys
    changes = np.logical_or.reduce([key[1:] != key[:-1] for key in keys])
    starts = [0, *(np.flatnonzero(changes) + 1).tolist(), len(found)]
    return [
        Run(
            readers[layers[start]].mesh(int(found["type"][start]), int(found["dataid"][start])),
            int(textures[start]),
            start,
            stop - start,
            bool(mirrors[start]),
        )
        for start, stop in itertools.pairwise(starts)
    ]


class _Worlds:
    """Each picture's views of the world and of the mirrored world."""

    def __init__(
        self,
        seen: cameras.Cameras,
        found: np.ndarray,
        layers: np.ndarray,
        is_mirror: np.ndarray,
        count: int,
    ) -> None:
        self.seen = seen
        self.reflectance = np.zeros(count)
        self.mirrors, self.planes = np.tile(np.eye(4), (count, 1, 1)), np.zeros((count, 4))
        self.planes[:, 3] = -1  # nothing is in front of a mirror that is not there
        surfaces, which = found[is_mirror], layers[is_mirror]
        place, up = surfaces["pos"].astype(float), surfaces["mat"][:, 2::3].astype(float)
        self.reflectance[which] = surfaces["reflectance"]
        self.mirrors[which] = cameras.mirrors(place, up)
        self.planes[which, :3], self.planes[which, 3] = -up, (place * up).sum(1)
        self.mirrored_eyes = seen.eyes @ self.mirrors


def _write_shapes(
    made: np.ndarray,
    found: np.ndarray,
    layers: np.ndarray,
    worlds: _Worlds,
    shadows: np.ndarray,
    reader: SceneReader,
) -> None:
    """Write records of shapes, for the program."""
    place = np.zeros((len(found), 4, 4))
    place[:, :3, :3], place[:, :3, 3] = found["mat"].reshape(-1, 3, 3), found["pos"]
    place[:, 3, 3] = 1
    seen = worlds.seen
    matrices = (
        *(seen.eyes, seen.clips, worlds.mirrored_eyes, seen.clips @ worlds.mirrors),
        shadows,
    )
    # All five of a picture times the places of its shapes.
    together = np.stack(matrices, 1)[layers] @ place[:, None]
    made[:, :80] = together.swapaxes(-1, -2).reshape(-1, 80)  # columns first
    planes = (worlds.planes[:, None] @ worlds.mirrors)[layers] @ place
    made[:, 80:84] = planes[:, 0]
    is_plane = found["type"] == PLANE
    made[:, 84:87] = found["size"]
    made[is_plane, 86] = 1
    made[is_plane & (found["dataid"] >= 0), 84:86] = 1
    made[:, 88:92] = found["rgba"]
    made[:, 92], made[:, 93] = found["emission"], found["specular"]
    made[:, 94], made[:, 95] = 128 * found["shininess"], worlds.reflectance[layers]
    unit, whole = _repeats(found, reader)
    made[:, 96:98], made[:, 98] = unit, layers
    made[:, 87], made[:, 99] = 0.5 * whole[:, 0], 0.5 * whole[:, 1]


def _repeats(found: np.ndarray, reader: SceneReader) -> tuple[np.ndarray, np.ndarray]:
    """How often textures repeat within two units of each dimension, and on the whole shape."""
    material, size = found["matid"], found["size"][:, :2]
    repeats, stretched = reader.repeats[material], size > 0
    whole = np.where(reader.uniform[material][:, None] & stretched, repeats * size, repeats)
    prescaled = (found["dataid"] >= 0)[:, None] & stretched
    return np.where(prescaled, whole / np.where(stretched, size, 1), whole), whole


def _skies(readers: Sequence[SceneReader], first: int, count: int) -> list[Run]:
    """Skies of so many pictures each."""
    return [
        Run(cylinder(reader.fineness), reader.sky, first + number * count, count, False)
        for number, reader in enumerate(readers)
        if reader.sky
    ]


def _write_skies(made: np.ndarray, seen: cameras.Cameras) -> None:
    """Write records of the cylinders that skies are painted on."""
    place = np.zeros((len(made), 4, 4))
    place[:, [0, 1, 2], [0, 1, 2]] = 0.7 * seen.far[:, None]
    place[:, :3, 3], place[:, 3, 3] = seen.heads, 1
    made[:, 16:32] = (seen.clips @ place).swapaxes(-1, -2).reshape(-1, 16)
    made[:, 84:87], made[:, 98] = 1, np.arange(len(made))


def _light_records(lights: np.ndarray, there: np.ndarray, worlds: _Worlds) -> np.ndarray:
    """Records of lights, for the program."""
    made = np.zeros((*lights.shape, LIGHT_FLOATS // 4, 4), np.float32)
    along = lights["dir"].astype(float)
    spot = (lights["type"] == SPOT)[..., None]
    cutoff = np.where(spot[..., 0], lights["cutoff"], 180.0)
    position = np.concatenate([np.where(spot, lights["pos"], -along), spot], -1)
    for row, eyes in ((0, worlds.seen.eyes), (2, worlds.mirrored_eyes)):
        made[:, :, row] = position @ eyes.transpose(0, 2, 1)
        made[:, :, row + 1, :3] = along @ eyes[:, :3, :3].transpose(0, 2, 1)
        made[:, :, row + 1, 3] = np.cos(np.radians(cutoff))
    for row, name in ((4, "ambient"), (5, "diffuse"), (6, "specular"), (7, "attenuation")):
        made[:, :, row, :3] = lights[name]
    made[:, :, 7, 3] = lights["exponent"]
    made[:, :, 8, 0], made[:, :, 8, 1], made[:, :, 8, 2] = there, lights["castshadow"] > 0, cutoff
    return made
