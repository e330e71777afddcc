"""Numbers in words, for tables, cards and captions."""

from __future__ import annotations

import math
from collections.abc import Sequence


def number(value: float) -> str:
    """A return, as precise as its size deserves; a dash where there is none.

    >>> number(1234.5), number(7.25), number(0.123), number(float("nan"))
    ('1,234', '7.2', '0.12', '–')
    """
    if not math.isfinite(value):
        return "–"
    size = abs(value)
    return f"{value:,.0f}" if size >= 10 else f"{value:.1f}" if size >= 1 else f"{value:.2g}"


def rate(value: float) -> str:
    """A success rate, as the paper prints them: 0.89."""
    return f"{value:.2f}" if math.isfinite(value) else "–"


def decisions(count: int, action_repeat: int | None) -> str:
    """Decisions with the frames they took, both named."""
    frames = f" = {count * action_repeat:,} frames" if action_repeat else ""
    return f"{count:,} decisions{frames}"


def count(value: int) -> str:
    """A large number for a headline.

    >>> count(6000), count(500_000), count(62_500_000)
    ('6,000', '500k', '62.5M')
    """
    for least, size, unit in ((1_000_000, 1_000_000, "M"), (10_000, 1000, "k")):
        if value >= least:
            return f"{round(value / size, 1):,g}{unit}"
    return f"{value:,}"


def duration(seconds: float) -> str:
    """A wall time such as 42 s, 12 min, 3.1 h, 5.2 days."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    hours = seconds / 3600
    return f"{hours:.1f} h" if hours < 72 else f"{hours / 24:,.1f} days"


def plural(how_many: int, noun: str) -> str:
    """'1 run', '5 runs'."""
    return f"{how_many:,} {noun}" + ("" if how_many == 1 else "s")


def listed(names: Sequence[str], most: int = 6, between: str = ", ") -> str:
    """The first few names, and how many more there are.

    >>> listed(["a", "b", "c"], most=2)
    'a, b and 1 more'
    """
    rest = len(names) - most
    return between.join(names[:most]) + (f" and {rest} more" if rest > 0 else "")
