"""docs/leaderboard.md: what was trained here, and what others have published."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from comparison import (
    MODES,
    TASKS,
    Seeds,
    from_to,
    mean_interval,
    plus_minus,
    records_at_100k,
    table,
)

from svea.core.words import number
from svea.data.clips import DMCGB, source_of
from svea.results.groups import Group
from svea.results.published import PAPER_RESULTS, PaperResult
from svea.results.read import by_world
from svea.results.tables import ABOUT, Cell, Table

SOURCES = {
    "paper": "the paper's tables 1 and 4: MuJoCo 2.0, overlay with Places365; its CURL, RAD, PAD "
    "and SODA are quoted from SODA's paper",
    "Fig. 19": "read off Fig. 19 of SimGRL's paper, to about 10 points; it does not name the "
    "augmentation of SVEA",
    "SimGRL": "[SimGRL's table](https://github.com/W-Song11/SimGRL): rows of others are from their "
    "papers or trained again; Places365",
    "SGQN": "[SGQN's page](https://github.com/SuReLI/SGQN): action repeat 4 on all tasks",
    "MaDi": "[MaDi's page](https://github.com/bramgrooten/mask-distractions): all rows trained "
    "again there",
    "SADA": "[SADA's page](https://github.com/aalmuzairee/SADA): trained with six augmentations, "
    "action repeat 2, video modes and renderer of DMC-GB2",
}
"""Where numbers of others are from, and what differs from ours."""


def ours(groups: Iterable[Group], long: Iterable[Group]) -> Table:
    """A row per setting and length; one per task where a setting has not run on all tasks."""
    trained: dict[tuple[str, bool], dict[str, list[Seeds]]] = {}
    for label, tasks in records_at_100k(groups).items():
        trained[label, False] = tasks
    for group in long:
        for run in group.runs:
            last = max(r["decision"] for r in run.agent_episodes)
            final = [r for r in run.agent_episodes if r["decision"] == last]
            trained.setdefault((group.label, True), {}).setdefault(group.task, []).append(final)
    rows = []
    for (label, _), tasks in trained.items():
        whole = set(TASKS) <= set(tasks)
        for names in [TASKS] if whole else [[task] for task in TASKS if task in tasks]:
            rows.append(_row(label, names, [tasks[task] for task in names]))
    rows.sort(key=lambda row: (len(row[2].text) > 1, -_first(row[1]), -row[6].value))
    titles = ("setting", "decisions", "tasks", *MODES, "seeds", "episodes", "protocol")
    note = (
        "Mean return ± half the width of the 95 % interval over worlds and seeds (train: "
        "episodes); with one seed it says nothing about other seeds. Seeds are per task, episodes "
        "per mode and agent. Rows over all 5 tasks come first, then single tasks; of these longer "
        "runs, then higher returns in video_hard."
    )
    return table("leaderboard", titles, rows, note)


def _first(cell: Cell) -> int:
    return int(cell.text.partition(" ")[0].replace(",", ""))


def _row(label: str, names: list[str], tasks: list[Seeds]) -> tuple[Cell, ...]:
    records = [r for seeds in tasks for seed in seeds for r in seed if r["mode"] in MODES]
    lengths = sorted({r["decision"] for r in records})
    played = {
        sum(r["mode"] == mode for r in seed) for seeds in tasks for seed in seeds for mode in MODES
    }
    videos = {source_of(r["provenance"]) for r in records if r["mode"].startswith("video")}
    return (
        Cell(f"`{label}`"),
        Cell(" to ".join(f"{n:,}" for n in sorted({lengths[0], lengths[-1]}))),
        Cell(str(len(names)) if len(names) > 1 else names[0]),
        *(_mean(tasks, mode) for mode in MODES),
        Cell(from_to({len(seeds) for seeds in tasks})),
        Cell(from_to(played - {0}).replace(" to ", "–")),
        Cell("benchmark" if videos == {DMCGB} else "re-coded"),
    )


def _mean(tasks: list[Seeds], mode: str) -> Cell:
    """A mean with half the width of its interval; a dash where a task lacks the mode."""
    ends = mean_interval(
        [[by_world(r for r in one if r["mode"] == mode) for one in seeds] for seeds in tasks]
    )
    if ends is None:
        return Cell("–")
    return replace(plus_minus(ends), value=ends.point)


def others(root: Path) -> Table:
    """Means over the same five tasks, as far as a source has them all."""
    found: dict[tuple[str, str], dict[str, dict[str, float]]] = {}
    for source, method, mode, task, mean in [*_papers(PAPER_RESULTS.values()), *_listed(root)]:
        found.setdefault((source, method), {}).setdefault(mode, {})[task] = mean
    rows = []
    for (source, method), modes in found.items():
        means = {
            mode: number(float(np.mean([tasks[task] for task in TASKS])))
            for mode, tasks in modes.items()
            if set(TASKS) <= set(tasks)
        }
        about = ABOUT if source == "Fig. 19" else ""
        cells = [f"{about}{means[m]}" if m in means else "–" for m in MODES[1:]]
        rows.append((method, *cells, source))
    rows = [row for row in rows if set(row[1:-1]) != {"–"}]
    rows.sort(key=lambda row: -(float(row[3]) if row[3] != "–" else 0))
    note = "Sources: " + "; ".join(f"**{name}**: {text}" for name, text in SOURCES.items()) + "."
    return table("published", ("method", *MODES[1:], "source"), rows, note)


def _papers(results: Iterable[PaperResult]) -> Iterator[tuple[str, str, str, str, float]]:
    """The paper's numbers for its CNN."""
    for one in results:
        if one.encoder == "cnn" and one.mode != "train":
            name = "DrQ" if one.method == "drq" else one.method.upper()
            source = "Fig. 19" if one.approximate else "paper"
            if not one.approximate and one.augment != "none":
                name += f" + {one.augment}"
            yield source, name, one.mode, one.task, one.mean


def _listed(root: Path) -> Iterator[tuple[str, str, str, str, float]]:
    """What results/published.csv has."""
    with (root / "results/published.csv").open(newline="") as file:
        for line in csv.DictReader(file):
            for task in TASKS:
                mean = float(line[task].partition("±")[0])
                yield line["source"], line["method"], line["mode"], task, mean
