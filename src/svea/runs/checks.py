"""Checks of values that were read from a checkpoint: their hashes are right, but are they?

A hash tells damage from what was written, not what was written from what makes sense.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Collection
from typing import Any

from svea.core.errors import LARGEST


def integer(name: str, value: Any, least: int = 0, most: int = LARGEST) -> int:
    """The value, if it is an integer in this range.

    >>> integer("updates", -5)
    Traceback (most recent call last):
    ValueError: updates is -5; allowed: an integer from 0 to 1,000,000,000
    """
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{name} is {show(value)}; allowed: an integer from {least:,} to {most:,}")
    return value


def number(name: str, value: Any, least: float = -math.inf, most: float = math.inf) -> float:
    """The value, if it is a finite number in this range."""
    if type(value) not in (int, float) or not math.isfinite(value) or not least <= value <= most:
        bounds = f" from {least:g} to {most:g}" if math.isfinite(most - least) else ""
        raise ValueError(f"{name} is {show(value)}; allowed: a finite number{bounds}")
    return float(value)


def text(name: str, value: Any, allowed: Collection[str] = ()) -> str:
    """The value, if it is a text, and one of those allowed where there are any."""
    if not isinstance(value, str) or (allowed and value not in allowed):
        rule = f"one of {', '.join(allowed)}" if allowed else "a text"
        raise ValueError(f"{name} is {show(value)}; allowed: {rule}")
    return value


def listing(name: str, value: Any, length: int | None = None) -> list[Any]:
    """The value, if it is a list, and of this length where one is given."""
    if not isinstance(value, list) or (length is not None and len(value) != length):
        rule = "a list" if length is None else f"a list of {length}"
        raise ValueError(f"{name} is {show(value)}; allowed: {rule}")
    return value


def mapping(name: str, value: Any, keys: Collection[str] | None = None) -> dict[str, Any]:
    """The value, if it is an object, and with exactly these keys where some are given."""
    if not isinstance(value, dict):
        raise ValueError(f"{name} is {show(value)}; allowed: an object")
    if keys is not None and set(value) != set(keys):
        differ = sorted(set(value) ^ set(keys))
        raise ValueError(f"{name} has other keys than expected: {show(differ)}")
    return value


def show(value: Any) -> str:
    """A value in a message, however long it is."""
    return reprlib.repr(value)
