"""Returns in pictures of our rasteriser and in OpenGL's: the same agents and episodes in both.

    python benchmarks/renderers.py --episodes 10                       # all of zoo/
    python benchmarks/renderers.py --agents zoo/walker_walk-svea --modes train --episodes 2

Each episode is written down as it ends, in OUT/RENDERER/AGENT/eval.jsonl: the same command
continues. The differences are rasteriser minus OpenGL, of equal seeds, with a 95 % bootstrap
interval over episodes. Modes that the rasteriser leaves to OpenGL are named and not counted.
"""

from __future__ import annotations

import argparse
import functools
import os
import shutil
from collections import defaultdict
from pathlib import Path

import numpy as np

from svea.envs.rendering.backend import PROGRAM
from svea.evaluation.requests import Request, Scoring
from svea.results import stats
from svea.runs.records import Record

DRAWING = {"raster": "cpu", "opengl": "opengl"}
"""Values of SVEA_DRAWING."""


def main() -> None:
    """Play what is missing, and print the differences."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--agents", nargs="+", type=Path)
    parser.add_argument("--modes", nargs="+", default=["train", "color_hard", "video_hard"])
    parser.add_argument("--episodes", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/renderers"))
    options = parser.parse_args()
    agents = options.agents or sorted(path.parent for path in Path("zoo").glob("*/config.json"))
    request = Request(tuple(options.modes), options.episodes, options.seed)
    found: dict[tuple[str, str], dict[str, dict[int, Record]]] = {}
    for agent in agents:
        for renderer in DRAWING:
            for record in played(agent, request, renderer, options.out / renderer / agent.name):
                cell = found.setdefault((agent.name, record["mode"]), defaultdict(dict))
                cell[renderer][record["seed"]] = record
    print_differences(found)


def played(agent: Path, request: Request, renderer: str, folder: Path) -> list[Record]:
    """An agent's episodes as one renderer draws them; those that are written down already count."""
    os.environ["SVEA_DRAWING"] = DRAWING[renderer]
    keep = shutil.ignore_patterns("eval.jsonl")
    shutil.copytree(agent, folder, ignore=keep, dirs_exist_ok=True)

    def show(_: Path, record: Record) -> None:
        print(f"{folder.name} {record['mode']} {renderer} {record['return']:.1f}", flush=True)

    scoring = Scoring([folder], request)
    scoring.play(show)
    if scoring.problems:
        raise SystemExit("\n".join(scoring.problems))
    return scoring.records[folder]


def print_differences(found: dict[tuple[str, str], dict[str, dict[int, Record]]]) -> None:
    """A line for each agent and mode, for each task and mode, for each mode, and for all."""
    gaps: dict[tuple[str, str, str], list[float]] = {}
    for (agent, mode), cell in found.items():
        ours, theirs = cell["raster"], cell["opengl"]
        shared = sorted(ours.keys() & theirs.keys())
        if not all(ours[s]["provenance"]["renderer"].startswith(PROGRAM) for s in shared):
            print(f"{agent} {mode}: left to OpenGL, not counted")
            continue
        task = ours[shared[0]]["task"]
        gaps[task, agent, mode] = [ours[s]["return"] - theirs[s]["return"] for s in shared]
    print(f"\n{'task, agent, mode':64}{'episodes':>9}{'difference [95 %]':>26}")
    lines = functools.partial(print_line, gaps)
    for key in gaps:
        lines(" ".join(key[1:]), *key)
    for task in dict.fromkeys(key[0] for key in gaps):
        lines(f"{task}, all agents and modes", task=task)
    for mode in dict.fromkeys(key[2] for key in gaps):
        lines(f"{mode}, all agents", mode=mode)
    lines("all")


def print_line(
    gaps: dict[tuple[str, str, str], list[float]],
    name: str,
    task: str = "",
    agent: str = "",
    mode: str = "",
) -> None:
    """The mean difference over what fits, each agent and mode a stratum."""
    wanted = (task, agent, mode)
    strata = [
        np.array(values)
        for key, values in gaps.items()
        if all(given in ("", own) for given, own in zip(wanted, key, strict=True))
    ]
    one = stats.bootstrap_interval(strata, stats.mean)
    count = sum(map(len, strata))
    print(f"{name:64}{count:9}{f'{one.point:+.1f} [{one.low:+.1f}, {one.high:+.1f}]':>26}")


if __name__ == "__main__":
    main()
