"""Numbers and names as text: how a return, a count, a duration or a list is written everywhere."""

import math
from collections.abc import Callable, Sequence


def number(value: float) -> str:
    """A return, as precise as its size deserves: 1,234 or 7.2 or 0.12; a dash if there is none."""
    if not math.isfinite(value):
        return "–"
    size = abs(value)
    return f"{value:,.0f}" if size >= 10 else f"{value:.1f}" if size >= 1 else f"{value:.2g}"


def rate(value: float) -> str:
    """A success rate, as the paper prints them: 0.89."""
    return f"{value:.2f}" if math.isfinite(value) else "–"


def significant(value: float) -> str:
    """Three digits of a quantity of any size: 0.0123 or 1.23e+03; a dash where there is none."""
    return f"{value:.3g}" if math.isfinite(value) else "–"


def mean_std(mean: float, std: float, show: Callable[[float], str] = number) -> str:
    """'760 ± 145', or '760' where there is no deviation."""
    return f"{show(mean)} ± {show(std)}" if math.isfinite(std) else show(mean)


def interval(low: float, high: float, show: Callable[[float], str] = number) -> str:
    """The two ends of an interval: '[700, 810]'; empty where there is none."""
    return f"[{show(low)}, {show(high)}]" if math.isfinite(low + high) else ""


def decisions(count: int, action_repeat: int | None) -> str:
    """Decisions with the frames they took, both named."""
    frames = f" = {count * action_repeat:,} frames" if action_repeat else ""
    return f"{count:,} decisions{frames}"


def count(value: int) -> str:
    """A large number for a headline: 6,000 or 500k or 62.5M."""
    if value < 10_000:
        return f"{value:,}"
    size, unit = (1_000_000, "M") if value >= 1_000_000 else (1000, "k")
    return f"{round(value / size, 1):,g}{unit}"


def tick(value: float) -> str:
    """A number below an axis: 500 or 2.5k or 1M."""
    size, unit = (1e6, "M") if abs(value) >= 1e6 else (1e3, "k") if abs(value) >= 1e3 else (1, "")
    return f"{value / size:g}{unit}"


def duration(seconds: float) -> str:
    """A wall time such as 42 s, 12 min, 3.1 h, 5.2 days."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    hours = seconds / 3600
    return f"{hours:.1f} h" if hours < 72 else f"{hours / 24:,.1f} days"


def size(amount: int) -> str:
    """Bytes for people: 12.7 GB or 1.7 MB or 300 bytes."""
    if amount < 1e6:
        return f"{amount} bytes"
    return f"{amount / 1e9:.1f} GB" if amount >= 1e9 else f"{amount / 1e6:.1f} MB"


def plural(how_many: int, noun: str) -> str:
    """'1 run', '5 runs'."""
    return f"{how_many:,} {noun}" + ("" if how_many == 1 else "s")


def one_line(error: BaseException) -> str:
    """An error's message without line breaks; its kind where it has none."""
    return " ".join(str(error).split()) or type(error).__name__


def listed(names: Sequence[str], most: int = 6, between: str = ", ") -> str:
    """The first few names, and how many more there are: 'a, b and 1 more'."""
    rest = len(names) - most
    return between.join(names[:most]) + (f" and {rest} more" if rest > 0 else "")
