"""What was tried, what survived, what was lost."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MOST_REPORTS = 20  # of losses, in full


@dataclass
class Tally:
    """The count of one part."""

    tried: int = 0
    survived: int = 0
    losses: list[str] = field(default_factory=list)
    measured: dict[str, float] = field(default_factory=dict)
    """The largest value of each thing that was measured."""
    skipped: str = ""
    """Why nothing was tried."""

    @contextlib.contextmanager
    def case(self, name: str, count: int = 1) -> Iterator[None]:
        """One fault (or several): survived if the block ends, lost if it raises."""
        self.tried += count
        try:
            yield
        except Exception:
            self.losses.append(f"{name}\n{traceback.format_exc(limit=-6)}")
        else:
            self.survived += count

    def measure(self, name: str, value: float) -> None:
        """Keep the largest value."""
        self.measured[name] = max(value, self.measured.get(name, value))

    def add(self, other: Tally) -> None:
        """Take over another count of the same part."""
        self.tried += other.tried
        self.survived += other.survived
        self.losses += other.losses
        self.skipped = self.skipped or other.skipped
        for name, value in other.measured.items():
            self.measure(name, value)


@dataclass(frozen=True)
class Part:
    """One kind of fault."""

    name: str
    title: str
    size: int
    """Cases at full size."""
    shard: int
    """Cases that one process tries, so that parts can run side by side."""
    function: Callable[[range, int, Path], Tally]
    """Called with numbers of cases, the seed, and an empty folder."""
    films: bool = False
    """Whether it makes videos, which takes an ffmpeg that can."""

    def cases(self, scale: float) -> int:
        """How many cases at a scale."""
        return max(1, round(self.size * scale))


def shards(part: Part, scale: float) -> list[range]:
    """The cases of a part, cut into what one process tries."""
    cases = part.cases(scale)
    return [range(start, min(start + part.shard, cases)) for start in range(0, cases, part.shard)]


def expect(condition: Any, message: str) -> None:
    """`assert` that works under `python -O`, too."""
    if not condition:
        raise AssertionError(message)
