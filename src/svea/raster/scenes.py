"""What `mjv_updateScene` leaves in memory, as arrays of records.

Python reads MuJoCo's lists of shapes and lights one attribute at a time. Here that memory is an
array, so that `raster.c` can read it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Any

import numpy as np

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
    """A list of MuJoCo's as an array of records, which shares its memory."""
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
