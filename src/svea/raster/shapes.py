"""Shapes as MuJoCo tessellates them: vertices that quads share.

MuJoCo computes light at vertices and lets the GPU interpolate between them, so a picture is equal
to one of MuJoCo's only if its shapes have the same vertices and the same quads. A triangle is a
quad whose last two corners are one.

A vertex has seven numbers: its place and normal on the shape of size one, and its end. On a capsule
the ends are half spheres that do not stretch with its length; they have +1 and -1 there, everything
else has 0. Two more, for each corner of a quad, are its place on a texture, from -1 to 1 across and
up: on a seam there are two such places.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

MAX_PLANE_GRID = 200  # mjMAXPLANEGRID

Angles = np.ndarray
Corner = Callable[[Angles, np.ndarray], np.ndarray]


@dataclass(frozen=True, eq=False)
class Mesh:
    """Vertices, and for each quad four indices of them and the texture's four places."""

    vertices: np.ndarray
    quads: np.ndarray
    places: np.ndarray


@dataclass(frozen=True)
class Fineness:
    """How finely a model's `visual/quality` has its shapes divided."""

    slices: int
    stacks: int
    quads: int


@functools.cache
def sphere(fineness: Fineness) -> Mesh:
    """A unit sphere, also for ellipsoids."""
    half = fineness.stacks // 2
    return _mesh(_dome(-1, half, fineness.slices), _dome(+1, half, fineness.slices))


@functools.cache
def capsule(fineness: Fineness) -> Mesh:
    """A pipe of radius one from -1 to 1, and half spheres around the middles of its ends."""
    half, slices = fineness.stacks // 2, fineness.slices
    ends = [_dome(sign, half, slices, end=sign) for sign in (+1, -1)]
    return _mesh(_pipe(fineness.stacks, slices), *ends)


@functools.cache
def cylinder(fineness: Fineness) -> Mesh:
    """A closed pipe of radius one from -1 to 1."""
    half, slices = fineness.stacks // 2, fineness.slices
    disks = _disk(-1, half, slices), _disk(+1, half, slices)
    return _mesh(disks[0], _pipe(fineness.stacks, slices), disks[1])


@functools.cache
def box(fineness: Fineness) -> Mesh:
    """A cube from -1 to 1."""
    grid = np.linspace(-1, 1, fineness.quads + 1)
    # The two axes of each side, in the order that has its front outside, and the one it faces.
    sides = [(0, 1, 2, 1), (1, 0, 2, -1), (1, 2, 0, 1), (2, 1, 0, -1), (2, 0, 1, 1), (0, 2, 1, -1)]
    return _mesh(*[_flat(grid, grid, *side) for side in sides])


@functools.cache
def plane(x: tuple[float, ...], y: tuple[float, ...]) -> Mesh:
    """A plane that is divided at these lines, facing up."""
    return _mesh(_flat(np.array(x), np.array(y), 0, 1, 2, 0))


@functools.cache
def plane_lines(
    half: float, spacing: float, texture_repeats: float, far: float
) -> tuple[float, ...]:
    """Where MuJoCo divides one dimension of a plane, given half of its size (0: without end).

    The spacing is its third size; its material's texture repeats so often (0: it has none); and the
    camera sees so far.
    """
    if half <= 0:
        step = 2 / texture_repeats if texture_repeats > 0 else 2.1 * far / (MAX_PLANE_GRID - 2)
        width = (2.1 * far + 2 * step) / MAX_PLANE_GRID
        return tuple(width * (line - MAX_PLANE_GRID // 2) for line in range(MAX_PLANE_GRID + 1))
    spacing = max(spacing, half / (MAX_PLANE_GRID - 2))
    count = int(half // max(1e-15, spacing))
    count -= count % 2
    margin = half - count * spacing
    inner = [-half + margin + 2 * spacing * line for line in range(count + 1)]
    return (-half, *inner, max(inner[-1], inner[-1] + margin))


# Parts: quads as arrays of shape (quads, 4, 9) ----------------------------------------------------


def _mesh(*parts: np.ndarray) -> Mesh:
    """Parts as one mesh, in which equal vertices are one."""
    corners = np.concatenate(parts).reshape(-1, 9).astype(np.float32)
    vertices, index = np.unique(corners[:, :7], axis=0, return_inverse=True)
    return Mesh(vertices, index.reshape(-1).astype(np.uint32), corners[:, 7:].reshape(-1, 4, 2))


def _dome(sign: int, stacks: int, slices: int, end: int = 0) -> np.ndarray:
    """The upper or lower half of a sphere."""

    def corner(azimuth: np.ndarray, elevation: np.ndarray) -> np.ndarray:
        flat = np.cos(elevation)
        at = np.stack([np.cos(azimuth) * flat, np.sin(azimuth) * flat, np.sin(elevation)], -1)
        up = (1 + abs(end)) * elevation / (np.pi / 2) - end
        rest = np.stack([np.full_like(up, end), azimuth / np.pi - 1, up], -1)
        return np.concatenate([at, at, rest], -1)

    elevations = np.pi / 2 * sign * np.arange(stacks) / stacks
    pole = np.array([0, 0, sign, 0, 0, sign, end, np.nan, sign])
    return _around(corner, elevations, slices, pole, turned=sign < 0)


def _disk(sign: int, stacks: int, slices: int) -> np.ndarray:
    """The lid or the bottom of a cylinder."""

    def corner(azimuth: np.ndarray, radius: np.ndarray) -> np.ndarray:
        x, y, one = np.cos(azimuth) * radius, np.sin(azimuth) * radius, np.ones_like(radius)
        zero = np.zeros_like(radius)
        return np.stack([x, y, sign * one, zero, zero, sign * one, zero, x, -y], -1)

    middle = np.array([0, 0, sign, 0, 0, sign, 0, 0, 0])
    radii = 1 - np.arange(stacks) / stacks
    return _around(corner, radii, slices, middle, turned=sign < 0)


def _pipe(stacks: int, slices: int) -> np.ndarray:
    """A cylinder without lid and bottom."""

    def corner(azimuth: np.ndarray, height: np.ndarray) -> np.ndarray:
        x, y, zero = np.cos(azimuth), np.sin(azimuth), np.zeros_like(height)
        return np.stack([x, y, height, x, y, zero, zero, azimuth / np.pi - 1, height], -1)

    return _around(corner, np.linspace(-1, 1, stacks + 1), slices)


def _around(
    corner: Corner,
    rings: np.ndarray,
    slices: int,
    pole: np.ndarray | None = None,
    *,
    turned: bool = False,
) -> np.ndarray:
    """Quads between rings around the third axis, and triangles from the last one to a pole.

    A pole may leave open where it is in a texture across: in the middle of each triangle's edge.
    """
    azimuths = 2 * np.pi * np.arange(slices + 1) / slices
    points = corner(*np.broadcast_arrays(azimuths, rings[:, None]))
    left, right = points[:, :-1], points[:, 1:]
    quads = np.stack([left[:-1], right[:-1], right[1:], left[1:]], 2).reshape(-1, 4, 9)
    if pole is not None:
        top = np.where(np.isnan(pole), (left[-1] + right[-1]) / 2, pole)
        quads = np.concatenate([np.stack([left[-1], right[-1], top, top], 1), quads])
    if not turned:
        return quads
    # From the other side; a triangle's double corner stays at the end.
    flipped = quads[:, [3, 2, 1, 0]].copy()
    if pole is not None:
        flipped[:slices] = quads[:slices][:, [2, 1, 0, 0]]
    return flipped


def _flat(x: np.ndarray, y: np.ndarray, across: int, up: int, facing: int, side: int) -> np.ndarray:
    """A rectangle that is divided at lines, on one side of the cube or, with side 0, at 0."""
    low, high = np.meshgrid(x[:-1], y[:-1], indexing="ij"), np.meshgrid(x[1:], y[1:], indexing="ij")
    quads = np.zeros((low[0].size, 4, 9))
    for corner, (right, top) in enumerate([(0, 0), (1, 0), (1, 1), (0, 1)]):
        quads[:, corner, across] = (high if right else low)[0].ravel()
        quads[:, corner, up] = (high if top else low)[1].ravel()
    quads[:, :, facing], quads[:, :, 3 + facing] = side, side or 1
    quads[:, :, 7:] = quads[:, :, sorted((across, up))]
    return quads
