"""What MuJoCo would draw, as arrays: the shapes, lights and cameras of several scenes.

`mjv_updateScene` leaves lists of shapes and lights in memory, which Python reads one attribute at a
time. Here that memory is arrays of records, so that a batch of pictures takes a few array
operations.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from svea.envs.rendering import shapes
from svea.envs.rendering.shapes import Mesh

TEXTURE_ROLES, RGB_ROLE = 10, 1  # mjNTEXROLE, mjTEXROLE_RGB
SPOT, DIRECTIONAL = 0, 1  # mjtLightType
FLAT, SKY = 0, 2  # mjtTexture
MOST_LIGHTS = 4
"""Lights of a picture."""

_MESHES = {2: shapes.sphere, 3: shapes.capsule, 4: shapes.sphere, 5: shapes.cylinder, 6: shapes.box}
"""By mjtGeom. Planes, 0, have grids of their own."""


class SceneReader:
    """Reads the scene of one renderer."""

    def __init__(self, model: Any, scene: Any, context: Any, *, as_loaded: bool = False) -> None:
        """Find where the scene lies in memory, and what its materials look like.

        Args:
            model: What the scene shows.
            scene: A `mujoco.MjvScene` of it.
            context: Has its textures.
            as_loaded: No texture was changed since the context has them.
        """
        self._scene = scene
        self._shapes = _records(scene.geoms, scene.maxgeom, _SHAPE)
        self._lights = _records(scene.lights, MOST_LIGHTS, _LIGHT)
        self._cameras = _records(scene.camera, 2, _CAMERA)
        self.shadow_reach = float(context.shadowClip), float(context.shadowScale)
        quality = model.vis.quality
        self.fineness = shapes.Fineness(quality.numslices, quality.numstacks, quality.numquads)
        kinds = [int(kind) for kind in model.tex_type]
        names = [int(name) for name in context.texture[: len(kinds)]]
        self.sky = next((name for name, kind in zip(names, kinds, strict=True) if kind == SKY), 0)
        count = model.nmat
        texture = np.array(context.mat_texid).reshape(-1, TEXTURE_ROLES)[:count, RGB_ROLE]
        # Material -1, which is the last one here, is none.
        self.textures = np.array([names[number] if number >= 0 else 0 for number in [*texture, -1]])
        self.is_flat = np.array([kinds[number] == FLAT for number in [*texture]] + [True])
        self.is_flat |= self.textures == 0
        self.repeats = np.append(np.array(context.mat_texrepeat)[: 2 * count], [1, 1]).reshape(
            -1, 2
        )
        self.uniform = np.append(np.array(context.mat_texuniform)[:count] > 0, False)
        self._planes = _plane_grids(model)
        self.look: object = _look(model, texture) if as_loaded else object()
        """Equal for readers whose materials have equal textures."""
        self.kind = (
            *(self.shadow_reach, self.fineness, self._planes),
            *(self.repeats.tobytes(), self.uniform.tobytes()),
        )
        """Equal for readers whose shapes can be drawn together."""

    @property
    def light_count(self) -> int:
        """How many lights there are."""
        return int(self._scene.nlight)

    def mesh(self, kind: int, number: int) -> Mesh:
        """What a kind of shape is drawn as, or plane `number` of the model."""
        if kind != 0:
            return _MESHES[kind](self.fineness)
        if number < 0:
            lines = tuple(np.linspace(-1, 1, self.fineness.quads + 1))
            return shapes.plane(lines, lines)
        return shapes.plane(*self._planes[number])


def _plane_grids(model: Any) -> tuple[tuple[tuple[float, ...], tuple[float, ...]], ...]:
    """The lines of each plane's grid, in both dimensions."""
    far = float(model.vis.map.zfar) * float(model.stat.extent)
    made = []
    for geom in np.flatnonzero(model.geom_type == 0):
        material, (x, y, spacing) = int(model.geom_matid[geom]), map(float, model.geom_size[geom])
        across, up = map(float, model.mat_texrepeat[material]) if material >= 0 else (0.0, 0.0)
        lines = shapes.plane_lines(x, spacing, across, far), shapes.plane_lines(y, spacing, up, far)
        made.append(lines)
    return tuple(made)


def _look(model: Any, textures: np.ndarray) -> tuple[bytes, ...]:
    """Textures, and which one each material has, in a form to compare."""
    layout = model.tex_type, model.tex_width, model.tex_height, model.tex_adr
    pixels = hashlib.blake2b(model.tex_data).digest()
    return (pixels, textures.tobytes(), *(part.tobytes() for part in layout))


def all_shapes(readers: Sequence[SceneReader]) -> tuple[np.ndarray, np.ndarray]:
    """Shapes of several scenes as records, and the number of each one's scene."""
    found = [reader._shapes[: reader._scene.ngeom] for reader in readers]
    layers = np.repeat(np.arange(len(found)), [len(each) for each in found])
    return np.concatenate(found).view(_dtype(_SHAPE))[:, 0], layers


def all_lights(readers: Sequence[SceneReader]) -> np.ndarray:
    """Lights of several scenes as records, a row for each; beyond `light_count` is anything."""
    return np.stack([reader._lights for reader in readers]).view(_dtype(_LIGHT))[:, :, 0]


def all_cameras(readers: Sequence[SceneReader]) -> np.ndarray:
    """The pairs of cameras of several scenes; what is drawn is seen from between them."""
    return np.stack([reader._cameras for reader in readers]).view(_dtype(_CAMERA))[:, :, 0]


# Memory -------------------------------------------------------------------------------------------

_Fields = dict[str, tuple[str, int]]
_SHAPE: _Fields = {
    **dict.fromkeys(("type", "dataid", "category", "matid", "texcoord"), ("i4", 1)),
    **dict.fromkeys(("emission", "specular", "shininess", "reflectance"), ("f4", 1)),
    **{name: ("f4", length) for name, length in (("size", 3), ("pos", 3), ("mat", 9), ("rgba", 4))},
}
_LIGHT: _Fields = {
    "type": ("i4", 1),
    "castshadow": ("u1", 1),
    **dict.fromkeys(("cutoff", "exponent"), ("f4", 1)),
    **dict.fromkeys(("pos", "dir", "attenuation", "ambient", "diffuse", "specular"), ("f4", 3)),
}
_CAMERA: _Fields = {
    "orthographic": ("i4", 1),
    **{
        f"frustum_{name}": ("f4", 1) for name in ("center", "width", "bottom", "top", "near", "far")
    },
    **dict.fromkeys(("pos", "forward", "up"), ("f4", 3)),
}
_layouts: dict[int, np.dtype] = {}


def _dtype(fields: _Fields) -> np.dtype:
    """The layout of records, which the first reader has found."""
    return _layouts[id(fields)]


def _records(items: Any, count: int, fields: _Fields) -> np.ndarray:
    """A list of MuJoCo's as an array of rows of bytes, which shares its memory."""
    if id(fields) not in _layouts:
        _layouts[id(fields)] = _find_layout(items[0], items[1], fields)
    layout = _layouts[id(fields)]
    assert layout.fields is not None
    start = _address(items[0].pos) - layout.fields["pos"][1]
    memory = (ctypes.c_ubyte * (layout.itemsize * count)).from_address(start)
    return np.frombuffer(memoryview(memory), np.uint8).reshape(count, layout.itemsize)


def _find_layout(first: Any, second: Any, fields: _Fields) -> np.dtype:
    """Where fields lie in a record, found by writing to one: versions of MuJoCo differ."""
    base = _address(second.pos)
    step = base - _address(first.pos)
    window = (ctypes.c_ubyte * (2 * step)).from_address(base - step)
    memory = np.frombuffer(memoryview(window), np.uint8)
    offsets = {}
    for name, (kind, length) in fields.items():
        if length > 1:
            offsets[name] = _address(getattr(second, name)) - base
        else:
            offsets[name] = _find(second, name, memory, kind) - step
    start = min(offsets.values())
    names = list(fields)
    kinds = [kind if length == 1 else (kind, (length,)) for kind, length in fields.values()]
    places = [offsets[name] - start for name in names]
    layout = {"names": names, "formats": kinds, "offsets": places, "itemsize": step}
    return np.dtype(layout)  # type: ignore[call-overload,no-any-return]


def _find(item: Any, name: str, memory: np.ndarray, kind: str) -> int:
    """The place of a number in memory: what has changed when it is given two values in turn."""
    kept = getattr(item, name)
    places: list[set[int]] = []
    values: Iterable[int] = (0, 1) if kind == "u1" else (101, 57)
    for value in values:
        setattr(item, name, float(value) if kind == "f4" else value)
        places.append(set(map(int, np.flatnonzero(memory.view(kind) == value))))
    setattr(item, name, kept)
    (place,) = set.intersection(*places)
    return place * np.dtype(kind).itemsize


def _address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])
