"""Many shards, several at once; what was done is written down, so that it is done once."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import json
import platform
import sys
from collections.abc import Callable
from pathlib import Path

from faults.tally import Part, Tally, shards


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
