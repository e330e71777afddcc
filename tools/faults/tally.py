"""What was tried, what survived, what was lost; and many shares of it, several at once."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import json
import platform
import sys
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


def run(
    parts: list[Part],
    jobs: int,
    scale: float,
    seed: int,
    start: Callable[[Part, range, int], Tally],
    log: Path | None = None,
) -> list[tuple[Part, Tally]]:
    """Run every shard, several at once.

    Args:
        parts: what to run.
        jobs: processes at once.
        scale: share of the full size.
        seed: of everything that is drawn.
        start: runs one shard, in a process of its own.
        log: where each shard is written down at once, losses included; what is there is kept.
    """
    results = {part.name: Tally() for part in parts}
    done = read_log(log)
    work = []
    for part in parts:
        for cases in shards(part, scale):
            if earlier := done.get((part.name, cases.start, cases.stop, seed)):
                results[part.name].add(earlier)
            else:
                work.append((part, cases))
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        waiting = {pool.submit(start, p, cases, seed): (p, cases) for p, cases in work}
        for number, future in enumerate(concurrent.futures.as_completed(waiting), 1):
            part, cases = waiting[future]
            tally = future.result()
            results[part.name].add(tally)
            if log:
                write_log(log, part, cases, seed, tally)
            lost = f", {len(tally.losses)} LOST" if tally.losses else ""
            share = f"{part.name} {cases.start}-{cases.stop}"
            print(
                f"[{number}/{len(work)}] {share}: {tally.survived} of {tally.tried}{lost} "
                f"({tally.measured.get('shard seconds', 0):.0f} s)",
                file=sys.stderr,
                flush=True,
            )
    for part in parts:
        results[part.name].measured.pop("shard seconds", None)
    return [(part, results[part.name]) for part in parts]


def read_log(log: Path | None) -> dict[tuple[str, int, int, int], Tally]:
    """The shards of an earlier run, by part, first and last case, and seed."""
    if log is None or not log.exists():
        return {}
    lines = [json.loads(line) for line in log.read_text().splitlines() if line.endswith("}}")]
    return {(one["part"], *one["cases"], one["seed"]): Tally(**one["tally"]) for one in lines}


def write_log(log: Path, part: Part, cases: range, seed: int, tally: Tally) -> None:
    """Add a line about a shard."""
    line = {"part": part.name, "cases": [cases.start, cases.stop], "seed": seed}
    line |= {"machine": platform.node(), "python": platform.python_version()}
    line |= {"tally": dataclasses.asdict(tally)}
    whole = log.read_bytes()[-1:] in (b"", b"\n") if log.exists() else True
    with log.open("a") as file:
        file.write(("" if whole else "\n") + json.dumps(line) + "\n")
