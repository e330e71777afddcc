"""MuJoCo's pictures without OpenGL, by a program in C: `Raster(model, ...).draw(buffer)`.

MuJoCo 4 (November 2026) puts its OpenGL renderer into maintenance, so this is also what keeps the
benchmark's pixels alive. It knows MuJoCo's models and scenes, and nothing of tasks or environments.

OpenGL in software takes 7 to 26 ms for a picture of 84 pixels. This takes a fifth of that or less,
with MuJoCo's meshes, light, shadows, mirrors and textures: pictures are MuJoCo's but for rounding.
What it does not draw (`LEFT`; see raster_scenes.c) is left to MuJoCo. The program is compiled on
the machine that runs it.
"""

import ctypes
import functools
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from svea.core import compiled
from svea.core.terminal import warn
from svea.raster import shapes
from svea.raster.shapes import Mesh

SOURCE = Path(__file__).with_name("raster.c")
PARTS = (
    SOURCE,
    *(SOURCE.with_name(f"raster_{part}.c") for part in ("textures", "colors", "scenes")),
)
VERSION = 1
"""Part of every result's provenance: a change of the pictures needs another number."""

LEFT = (
    "our own program has no meshes, terrains, planes without end or seen from below, several "
    "translucent shapes, one in a mirror, or uncommon lights"
)
"""What MuJoCo has to draw."""

_LANES, _LEVELS, _KINDS = 8, 16, 8  # as in raster.c
_DRAWN, _MUJOCOS = 0, 1
_FINE = 28
"""MuJoCo's default slices of a round shape. With fewer, its far side may shadow its near one."""
_ROLES, _RGB = 10, 1  # mjNTEXROLE, mjTEXROLE_RGB
_FLAT, _SKY, _SRGB = 0, 2, 2  # mjtTexture, mjtColorSpace
_ROUND = {2: shapes.sphere, 3: shapes.capsule, 4: shapes.sphere, 5: shapes.cylinder, 6: shapes.box}
"""By mjtGeom. Planes, 0, have grids of their own."""


@functools.cache
def library() -> ctypes.CDLL:
    """The program, compiled unless an earlier process did it."""
    made = compiled.load_c(PARTS, compiled.OPTIMISE, "raster_begin")
    made.raster_begin.restype = ctypes.c_void_p
    for name, count in (("begin", 0), ("end", 1), ("draw", 2), ("border", 2)):
        getattr(made, f"raster_{name}").argtypes = [ctypes.c_void_p] * count
    made.raster_plan.argtypes = [ctypes.c_void_p, *[ctypes.c_int] * 3]
    made.raster_fill.argtypes = [
        *(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p),
    ]
    return made


@functools.cache
def _say_what_is_left() -> None:
    """Say once that some pictures are MuJoCo's."""
    warn(f"OpenGL draws some pictures, which is slower: {LEFT}")


class _Mesh(ctypes.Structure):
    """`Mesh` of raster.c."""

    _fields_ = [
        ("vertices", ctypes.c_int), ("triangles", ctypes.c_int), ("closed", ctypes.c_int),
        ("reach", ctypes.c_float),
        *((name, ctypes.c_void_p) for name in ("rows", "corners", "places")),
    ]  # fmt: skip


class _Texture(ctypes.Structure):
    """`Texture` of raster.c."""

    _fields_ = [
        ("sides", ctypes.c_int), ("levels", ctypes.c_int), ("width", ctypes.c_int * _LEVELS),
        ("height", ctypes.c_int * _LEVELS), ("start", ctypes.c_int * _LEVELS),
        ("texels", ctypes.c_void_p),
    ]  # fmt: skip


class _Scene(ctypes.Structure):
    """`Scene` of raster.c."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("geoms", "lights", "cameras")),
        *((name, ctypes.c_void_p) for name in ("geom_at", "light_at", "camera_at")),
        *((name, ctypes.c_int) for name in ("geom_count", "light_count", "side", "shadow_side")),
        ("plane_count", ctypes.c_int),
        ("kinds", ctypes.c_void_p * _KINDS), ("plane", ctypes.c_void_p),
        ("planes", ctypes.c_void_p), ("materials", ctypes.c_int), ("textures", ctypes.c_void_p),
        *((name, ctypes.c_void_p) for name in ("known", "uniform", "repeats", "sky")),
        ("shadow_clip", ctypes.c_float), ("shadow_scale", ctypes.c_float), ("out", ctypes.c_void_p),
    ]  # fmt: skip


class Raster:
    """Draws one scene of a model."""

    name = f"svea raster {VERSION}"
    """What records call it."""

    @staticmethod
    def compile() -> None:
        """Compile the program, unless it is; `BuildError` says why it cannot be."""
        library()

    def __init__(self, model: Any, scene: Any, context: Any, shadow_side: int) -> None:
        """Find where the scene lies in memory, and copy the model's textures.

        The scene is a `mujoco.MjvScene` of the model, the context a `mujoco.MjrContext` of it, for
        what it says of materials; `shadow_side` is that of the map of shadows, in pixels. A
        `BuildError` says why the program cannot be compiled here.
        """
        self._library, self._scene = library(), scene
        self._kept: list[Any] = []  # memory that C has the addresses of
        self._textures = {
            number: Texture(model, number)
            for number in range(model.ntex)
            if _is_known(model, number)
        }
        self._c = _Scene(
            shadow_side=shadow_side,
            shadow_clip=float(context.shadowClip),
            shadow_scale=float(context.shadowScale),
        )
        self._find_records(scene)
        self._give_meshes(model)
        self._give_materials(model, context)
        self._work = self._library.raster_begin()
        if not self._work:
            raise MemoryError("no memory for a picture")

    def draw(self, buffer: np.ndarray) -> bool:
        """Fill a buffer with the scene's picture, bottom row first; False if MuJoCo has to."""
        self._c.geom_count, self._c.light_count = self._scene.ngeom, self._scene.nlight
        self._c.side, self._c.out = len(buffer), buffer.ctypes.data
        said = self._library.raster_draw(self._work, ctypes.addressof(self._c))
        if said == _MUJOCOS:
            _say_what_is_left()
        elif said != _DRAWN:
            raise MemoryError("no memory for a picture")
        return bool(said == _DRAWN)

    def refresh(self, texture: int, sides: Sequence[int] | None = None) -> None:
        """Copy a texture of the model again, or some sides of a cube, after it was changed."""
        if texture in self._textures:
            self._textures[texture].fill(sides)

    def __del__(self) -> None:
        """Free the memory that C has taken."""
        if getattr(self, "_work", None):
            self._library.raster_end(self._work)

    def _find_records(self, scene: Any) -> None:
        """Tell C where shapes, lights and cameras are."""
        for name, items, count, fields in (
            ("geom", scene.geoms, scene.maxgeom, SHAPE),
            ("light", scene.lights, MOST_LIGHTS, LIGHT),
            ("camera", scene.camera, 2, CAMERA),
        ):
            found = records(items, count, fields)
            setattr(self._c, f"{name}s", found.ctypes.data)
            setattr(self._c, f"{name}_at", self._keep(places(found)))

    def _give_meshes(self, model: Any) -> None:
        """Give C the meshes of the kinds of shapes, and of the model's planes."""
        quality = model.vis.quality
        fineness = shapes.Fineness(quality.numslices, quality.numstacks, quality.numquads)
        for kind, make in _ROUND.items():
            self._c.kinds[kind] = self._mesh(make(fineness), fineness.slices)
        self._c.kinds[0] = None
        lines = tuple(np.linspace(-1, 1, fineness.quads + 1))
        self._c.plane = self._mesh(shapes.plane(lines, lines))
        planes = [self._mesh(shapes.plane(*grid)) for grid in _plane_grids(model)]
        self._c.planes, self._c.plane_count = self._pointers(planes), len(planes)

    def _give_materials(self, model: Any, context: Any) -> None:
        """Give C what it needs to know of materials; the last one is that of things without any."""
        count = model.nmat
        numbers = [*np.array(context.mat_texid).reshape(-1, _ROLES)[:count, _RGB].tolist(), -1]
        flat = [number >= 0 and int(model.tex_type[number]) == _FLAT for number in numbers]
        known = [
            number < 0 or (is_flat and number in self._textures)
            for number, is_flat in zip(numbers, flat, strict=True)
        ]
        self._c.materials = count
        self._c.textures = self._pointers(
            [
                self._textures[number].address if number >= 0 and is_known else None
                for number, is_known in zip(numbers, known, strict=True)
            ]
        )
        uniform = np.append(np.array(context.mat_texuniform)[:count] > 0, False)
        repeats = np.append(np.array(context.mat_texrepeat)[: 2 * count], [1, 1])
        self._c.known = self._keep(np.array(known, np.uint8))
        self._c.uniform = self._keep(uniform.astype(np.uint8))
        self._c.repeats = self._keep(repeats.astype(np.float32))
        skies = [number for number in range(model.ntex) if int(model.tex_type[number]) == _SKY]
        if skies and skies[0] in self._textures:
            self._c.sky = self._textures[skies[0]].address
        elif skies:  # there is one, but not for us
            self._c.known = self._keep(np.zeros(count + 1, np.uint8))

    def _mesh(self, mesh: Mesh, slices: int = 0) -> int:
        """The address of a mesh for C; a plane has no slices."""
        made = _for_c(mesh, slices)
        self._kept.append(made)
        return ctypes.addressof(made[0])

    def _pointers(self, addresses: Sequence[int | None]) -> int:
        """The address of an array of addresses."""
        made = (ctypes.c_void_p * max(1, len(addresses)))(*addresses)
        self._kept.append(made)
        return ctypes.addressof(made)

    def _keep(self, array: np.ndarray) -> int:
        """The address of an array, which is kept as long as this object."""
        self._kept.append(array)
        return int(array.ctypes.data)


class Texture:
    """A copy of a model's texture, with ever smaller copies for C."""

    def __init__(self, model: Any, number: int) -> None:
        """Copy texture `number` of a model."""
        self._model, self._number, self._c = model, number, _Texture()
        self._sides = 6 if int(model.tex_type[number]) == _SKY else 1
        self._size = (0, 0)
        self.fill()

    @property
    def address(self) -> int:
        """Where C finds it."""
        return ctypes.addressof(self._c)

    def fill(self, sides: Sequence[int] | None = None) -> None:
        """Copy the model's pixels, of all sides of a cube or some, and make smaller copies."""
        model, number = self._model, self._number
        width, height = int(model.tex_width[number]), int(model.tex_height[number])
        if (width, height) != self._size:
            self._plan(width, height)
            sides = None
        pictures = height // width if self._sides == 6 else 1  # a sky may have one for all sides
        start, length = int(model.tex_adr[number]), 3 * width * height // pictures
        whole = model.tex_data[start : start + pictures * length].reshape(pictures, length)
        own, texels = self.address, self._texels.ctypes.data
        for side in range(pictures) if sides is None or pictures == 1 else sides:
            pixels = np.ascontiguousarray(whole[side])
            library().raster_fill(own, texels, side, pixels.ctypes.data)
        if self._sides == 6:
            for level in range(self._c.levels if pictures == 1 else 0):
                six = self._level(level)
                six[1:] = six[0]
            borders, neighbours = _borders(width)
            self._texels[borders] = self._texels[neighbours]

    def _plan(self, width: int, height: int) -> None:
        """Make room; a model's textures may change their sizes."""
        if not _is_known(self._model, self._number):
            raise ValueError(f"a sky of {width} x {height} pixels has no six sides")
        side = width if self._sides == 6 else height
        count = library().raster_plan(self.address, self._sides, width, side)
        if count < 0:
            raise ValueError(f"a texture of {width} x {height} pixels is too large")
        self._texels = np.zeros(count + _LANES, np.int32)
        self._c.texels, self._size = self._texels.ctypes.data, (width, height)

    def level(self, number: int, side: int = 0) -> np.ndarray:
        """One of the smaller copies, (height, width, 3)."""
        inner = slice(1, -1) if self._sides == 6 else slice(None)
        return self._level(number)[side, ..., None].view(np.uint8)[inner, inner, :3].copy()

    def _level(self, number: int) -> np.ndarray:
        """The texels of all sides with the borders of a cube's, (sides, height, width)."""
        border = 2 if self._sides == 6 else 0
        shape = (self._sides, self._c.height[number] + border, self._c.width[number] + border)
        return self._texels[self._c.start[number] :][: math.prod(shape)].reshape(shape)


@functools.cache
def _borders(width: int) -> tuple[np.ndarray, np.ndarray]:
    """Which texels surround the sides of a cube, and of which texels they are copies."""
    plan = _Texture()
    count = library().raster_plan(ctypes.addressof(plan), 6, width, width)
    copied = np.arange(count, dtype=np.int32)
    library().raster_border(ctypes.addressof(plan), copied.ctypes.data)
    borders = np.flatnonzero(copied != np.arange(count))
    return borders, copied[borders]


def _is_known(model: Any, number: int) -> bool:
    """Whether C knows a texture's kind."""
    kind, width = int(model.tex_type[number]), int(model.tex_width[number])
    square = int(model.tex_height[number]) in (width, 6 * width)
    return (
        (kind == _FLAT or (kind == _SKY and square))
        and int(model.tex_nchannel[number]) == 3
        and int(model.tex_colorspace[number]) != _SRGB
    )


@functools.cache
def _for_c(mesh: Mesh, slices: int) -> tuple[_Mesh, np.ndarray, np.ndarray, np.ndarray]:
    """A mesh as C reads it, and its memory: quads are two triangles, divided as in Mesa."""
    halves = [[0, 1, 3], [1, 2, 3]]
    corners = mesh.quads.reshape(-1, 4)[:, halves].reshape(-1, 3)
    a, b, c = corners.T
    whole = (a != b) & (b != c) & (c != a)
    rows = _filled(mesh.vertices.T.astype(np.float32))
    triangles = _filled(corners[whole].T.astype(np.int32), same=True)
    on_texture = mesh.places[:, halves].reshape(-1, 3, 2)[whole].transpose(2, 1, 0)
    places = _filled(on_texture.reshape(6, -1))
    reach = abs(mesh.vertices[:, :3]).max(0)
    closed = slices >= _FINE and reach.min() > 0
    sizes = len(mesh.vertices), int(whole.sum()), int(closed), float(reach.max())
    own = places.ctypes.data if slices else None
    made = _Mesh(*sizes, rows.ctypes.data, triangles.ctypes.data, own)
    return made, rows, triangles, places


def _filled(rows: np.ndarray, *, same: bool = False) -> np.ndarray:
    """Rows filled up to whole vectors, with their last columns, or with one number of it."""
    missing = -rows.shape[1] % _LANES
    last = np.full_like(rows[:, -1:], rows[0, -1]) if same else rows[:, -1:]
    return np.ascontiguousarray(np.concatenate([rows, *[last] * missing], 1))


def _plane_grids(model: Any) -> list[tuple[tuple[float, ...], tuple[float, ...]]]:
    """The lines of each plane's grid, in both dimensions."""
    far = float(model.vis.map.zfar) * float(model.stat.extent)
    made = []
    for geom in np.flatnonzero(model.geom_type == 0):
        material, (x, y, spacing) = int(model.geom_matid[geom]), map(float, model.geom_size[geom])
        across, up = map(float, model.mat_texrepeat[material]) if material >= 0 else (0.0, 0.0)
        lines = shapes.plane_lines(x, spacing, across, far), shapes.plane_lines(y, spacing, up, far)
        made.append(lines)
    return made


# What `mjv_updateScene` leaves in memory, as arrays of records that C can read --------------------

Fields = dict[str, tuple[str, int]]
"""Names of numbers, what kind they are of, and how many."""

SHAPE: Fields = {
    **dict.fromkeys(("type", "dataid", "matid", "texcoord"), ("i4", 1)),
    **dict.fromkeys(("emission", "specular", "shininess", "reflectance"), ("f4", 1)),
    **{name: ("f4", length) for name, length in (("size", 3), ("pos", 3), ("mat", 9), ("rgba", 4))},
}
LIGHT: Fields = {
    "type": ("i4", 1),
    "castshadow": ("u1", 1),
    **dict.fromkeys(("cutoff", "exponent"), ("f4", 1)),
    **dict.fromkeys(("pos", "dir", "attenuation", "ambient", "diffuse", "specular"), ("f4", 3)),
}
CAMERA: Fields = {
    "orthographic": ("i4", 1),
    **{
        f"frustum_{name}": ("f4", 1) for name in ("width", "center", "bottom", "top", "near", "far")
    },
    **dict.fromkeys(("pos", "forward", "up"), ("f4", 3)),
}
MOST_LIGHTS = 4
"""Lights of a picture."""

_layouts: dict[int, np.dtype] = {}


def records(items: Any, count: int, fields: Fields) -> np.ndarray:
    """A list of MuJoCo's as an array of records, which shares its memory.

    Python would read it one attribute at a time.
    """
    if id(fields) not in _layouts:
        _layouts[id(fields)] = _find_layout(items[0], items[1], fields)
    layout = _layouts[id(fields)]
    assert layout.fields is not None
    start = _address(items[0].pos) - layout.fields["pos"][1]
    memory = (ctypes.c_ubyte * (layout.itemsize * count)).from_address(start)
    rows = np.frombuffer(memoryview(memory), np.uint8).reshape(count, layout.itemsize)
    return rows.view(layout)[:, 0]


def places(array: np.ndarray) -> np.ndarray:
    """Where the fields of an array's records are, in bytes, and how long a record is."""
    assert array.dtype.fields is not None and array.dtype.names is not None
    offsets = [array.dtype.fields[name][1] for name in array.dtype.names]
    return np.array([*offsets, array.dtype.itemsize], np.int32)


def _find_layout(first: Any, second: Any, fields: Fields) -> np.dtype:
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
    layout = {
        "names": names,
        "formats": kinds,
        "offsets": [offsets[name] - start for name in names],
        "itemsize": step,
    }
    return np.dtype(layout)  # type: ignore[call-overload,no-any-return]


def _find(item: Any, name: str, memory: np.ndarray, kind: str) -> int:
    """The place of a number in memory: what has changed when it is given two values in turn."""
    kept = getattr(item, name)
    found: list[set[int]] = []
    values: Iterable[int] = (0, 1) if kind == "u1" else (101, 57)
    for value in values:
        setattr(item, name, float(value) if kind == "f4" else value)
        found.append(set(map(int, np.flatnonzero(memory.view(kind) == value))))
    setattr(item, name, kept)
    (place,) = set.intersection(*found)
    return place * np.dtype(kind).itemsize


def _address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])
