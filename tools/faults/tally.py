"""What was tried, what survived, what was lost; and many shares of it, several at once."""

import concurrent.futures
import contextlib
import shutil
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from svea.core.seeds import seed_for

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
    """Why nothing, or not everything, was tried."""

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

    def add(self, other: "Tally") -> None:
        """Take over another count of the same part."""
        self.tried += other.tried
        self.survived += other.survived
        self.losses += other.losses
        self.skipped = self.skipped or other.skipped
        for name, value in other.measured.items():
            self.measure(name, value)


Cases = Callable[[range, int, Path], Tally]
"""Called with numbers of cases, the seed of all that is drawn, and an empty folder."""


def expect(condition: Any, message: str) -> None:
    """`assert` that works under `python -O`, too."""
    if not condition:
        raise AssertionError(message)


def numbers(part: str, seed: int, case: int) -> np.random.Generator:
    """What a case draws from."""
    return np.random.default_rng(seed_for(seed, f"{part} {case}"))


def each(unless: Callable[[], str] = str) -> Callable[[Callable[..., None]], Cases]:
    """Make a part of a function of case, random numbers, run folder and tally.

    `unless` says why nothing can be tried on this machine, if that is so.
    """

    def part_of(trial: Callable[..., None]) -> Cases:
        def part(cases: range, seed: int, folder: Path) -> Tally:
            tally = Tally(skipped=unless())
            for case in cases if not tally.skipped else ():
                run = folder / f"case-{case}"
                with tally.case(f"{trial.__name__} {case}"):
                    trial(case, numbers(trial.__name__, seed, case), run, tally)
                shutil.rmtree(run, ignore_errors=True)
            return tally

        part.__name__ = trial.__name__
        return part

    return part_of


@dataclass(frozen=True)
class Part:
    """One kind of fault."""

    name: str
    title: str
    size: int
    """Cases at full size."""
    shard: int
    """Cases that one process tries, so that parts can run side by side."""
    function: Cases


def shards(part: Part, scale: float) -> list[range]:
    """The cases of a part at a scale, cut into what one process tries."""
    cases = max(1, round(part.size * scale))
    return [range(start, min(start + part.shard, cases)) for start in range(0, cases, part.shard)]


def run(
    parts: list[Part], jobs: int, scale: float, start: Callable[[Part, range], Tally]
) -> list[tuple[Part, Tally]]:
    """Run every shard by `start`, several at once."""
    results = {part.name: Tally() for part in parts}
    work = [(part, cases) for part in parts for cases in shards(part, scale)]
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        waiting = {pool.submit(start, *one): one for one in work}
        for number, future in enumerate(concurrent.futures.as_completed(waiting), 1):
            (part, cases), tally = waiting[future], future.result()
            results[part.name].add(tally)
            lost = f", {len(tally.losses)} LOST" if tally.losses else ""
            share = f"[{number}/{len(work)}] {part.name} {cases.start}-{cases.stop}"
            print(f"{share}: {tally.survived} of {tally.tried}{lost}", file=sys.stderr, flush=True)
    return [(part, results[part.name]) for part in parts]
