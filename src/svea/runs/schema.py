"""What is stored as JSON has the right keys and types, and its numbers are finite.

Files are hashed, so damage is noticed before; this names what another version has written.
"""

from __future__ import annotations

import math
import reprlib
from typing import Any

FILE = {"size": int, "sha256": str}
MANIFEST = {
    "format": int,
    "decision": int,
    "files": {str: FILE},
    "segments": [FILE | {"name": str, "frames": int, "transitions": int}],
}
"""Of a checkpoint; frames and transitions were ever written, up to a segment's end."""
STATE = {
    "speed": str,
    "updates": int,
    "owed_updates": int,
    "next_evaluation": int,
    "next_save": int,
    "next_log": int,
    "log_offset": int,
    "seconds": float,
    "random": {
        "bit_generator": str,
        "state": {"state": int, "inc": int},
        "has_uint32": int,
        "uinteger": int,
    },
    "figures": {"sums": {str: float}, "counts": {str: int}},
    "episodes": [{"seed": int, "number": int, "actions": [[float]], "total": float}],
    "replay": ({"first_transition": int, "stacks": {str: [int]}}, None),
}
"""Of a run, in state.json: what counts and draws."""
_WORDS = {
    int: "a whole number from 0", float: "a finite number", str: "a text", list: "a list",
    dict: "an object",
}  # fmt: skip


def check(value: Any, shape: Any, name: str) -> Any:
    """The value, if it has a shape; else an error that names it.

    A shape is a type; a list of one shape; an object by its keys, of which a value may have more,
    or of one shape under any key (`str`); a shape and None, for one that may be missing.

    >>> check({"seconds": "long"}, {"seconds": float}, "state")
    Traceback (most recent call last):
    ValueError: state.seconds is 'long'; allowed: a finite number
    """
    if isinstance(shape, tuple):
        return value if value is None else check(value, shape[0], name)
    kind = shape if isinstance(shape, type) else type(shape)
    right = type(value) in (int, float) if kind is float else type(value) is kind
    if right and kind in (int, float):
        right = math.isfinite(value) and (kind is float or value >= 0)
    if not right:
        raise ValueError(f"{name} is {reprlib.repr(value)}; allowed: {_WORDS[kind]}")
    if isinstance(shape, list):
        for each in value:
            check(each, shape[0], name)
    if isinstance(shape, dict):
        for key in value if str in shape else shape:
            if key not in value:
                raise ValueError(f"{name} has no {key!r}")
            check(value[key], shape.get(key, shape.get(str)), f"{name}.{key}")
    return value
