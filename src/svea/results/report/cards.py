"""The overview of a report: the size of the study, and a card per group."""

from __future__ import annotations

import itertools
import math
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from svea.core.words import count, decisions, duration, number, plural, rate
from svea.results import Group, Result, mean_curve
from svea.results.plots import color_of
from svea.results.run import Curve, Run
from svea.runs import layout

FEW_CARDS = 3  # more have fewer numbers each
OF_ONE_SEED = {"--seed", "--seeds", "--out", "-o"}  # flags of `svea train`: seeds and their folder
SPARK_POINTS = 60  # of the small curve on a card: more do not show at its size


@dataclass(frozen=True)
class Tile:
    """A large number with its name, and what it means next to another."""

    name: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Card:
    """What a reader looks for first about a group."""

    group: Group
    tiles: list[Tile]
    size: str
    badges: list[str]
    """What a reader must not miss."""
    curves: dict[str, str]
    """The points of the small learning curve of each mode, in a box of 120 × 36."""
    color: int
    """Of its method, as in every figure."""


@dataclass(frozen=True)
class Step:
    """What would make the evidence better, and the command for it."""

    why: str
    command: str


def next_steps(groups: Sequence[Group], results: Sequence[Result]) -> list[Step]:
    """What is missing on the page, the most useful first."""
    runs = [run for group in groups for run in group.runs]
    names = shlex.join(run.name for run in runs) if len(runs) <= FEW_CARDS else "RUNS"
    tested = {id(result.group) for result in results if result.mode != "train"}
    steps: list[Step] = []
    if unfinished := [run for run in runs if not run.finished and _can_continue(run)]:
        what = "it" if len(unfinished) == 1 else "them"
        why = f"{plural(len(unfinished), 'run')} can be continued by the command that began {what}."
        steps.append(Step(why, unfinished[0].command or "svea train …"))
    if any(id(group) not in tested for group in groups):
        why = "Not evaluated in worlds that training never showed."
        steps.append(Step(why, f"svea eval {names} --modes all --episodes all"))
    if not any(math.isfinite(result.random) for result in results):
        why = "The random policy is missing: it says what a return is worth."
        steps.append(Step(why, f"svea eval {names} --modes train --random-policy"))
    if not any(run.media(".mp4") for run in runs):
        why = "There are no videos: they show what a return cannot."
        steps.append(Step(why, f"svea eval {names} --modes train color_hard --videos"))
    if all(len(group.runs) == 1 for group in groups):
        why = "One seed says nothing about other seeds."
        steps.append(Step(why, _with_more_seeds(groups[0].runs[0])))
    return steps


def _can_continue(run: Run) -> bool:
    """Whether a run has kept what it takes: an export has not, nor one without its replay."""
    return not layout.is_export(run.folder) and run.config.get("save_replay") is not False


def _with_more_seeds(run: Run) -> str:
    """The command that made a run, with other seeds: of another setting they would not compare."""
    try:
        words = shlex.split(run.command or "")
    except ValueError:  # a quote without its end
        words = []
    if words[:2] == ["svea", "sweep"]:
        return "svea sweep … --seeds 0-4"  # what the study was given; the run does not know it
    if words[:2] != ["svea", "train"]:
        words = ["svea", "train", run.task, "--method", run.method, "--preset", run.preset]
    kept, flag = [], ""
    for before, word in itertools.pairwise(["", *words]):
        flag = word if word.startswith("-") else flag
        is_value = word != flag and (before in OF_ONE_SEED or flag == "--seeds")  # of any number
        if not is_value and word.partition("=")[0] not in OF_ONE_SEED:
            kept.append(word)
    return shlex.join([*kept, "--seeds", "0-4"])


def study(runs: Sequence[Run]) -> list[Tile]:
    """How large the whole is."""
    finished = sum(run.finished for run in runs)
    seconds = [run.seconds for run in runs if run.seconds is not None]
    total = sum(run.decisions_done for run in runs)
    # Exports have no log, so their decisions are known and their time is not.
    timed = f"of {len(seconds)} of {plural(len(runs), 'run')}" if len(seconds) < len(runs) else ""
    return [
        Tile("runs", count(len(runs)), f"{finished} finished" if finished < len(runs) else ""),
        Tile("tasks", str(len({run.task for run in runs}))),
        Tile("methods", str(len({run.method for run in runs}))),
        Tile("seeds", str(len({run.seed for run in runs}))),
        Tile("decisions in all", count(total)),
        Tile("wall time in all", *((duration(sum(seconds)), timed) if seconds else ("–",))),
    ]


def cards(
    groups: Sequence[Group], results: Sequence[Result], successes: Sequence[Result]
) -> list[Card]:
    """One card per group."""
    return [
        Card(
            group,
            list(_tiles(group, results, successes, brief=len(groups) > FEW_CARDS)),
            _size(group),
            list(_badges(group)),
            _curves(group),
            color_of(group.method),
        )
        for group in groups
    ]


def _tiles(
    group: Group, results: Sequence[Result], successes: Sequence[Result], *, brief: bool
) -> Iterator[Tile]:
    """Train and test return against the random policy, and how long they took."""
    by_mode = {result.mode: result for result in results if result.group is group}
    train, test = by_mode.get("train"), by_mode.get(group.test_mode or "")
    if train is not None:
        note = f"{train.times_random:.1f}× random" if train.times_random > 0 else ""
        yield Tile("return in training", number(train.mean), note)
    if test is not None:
        kept = test.percent_of_train
        note = f"{kept:.0f} % of training" if math.isfinite(kept) else ""
        yield Tile(f"return in {test.mode}", number(test.mean), note)
    for success in [one for one in successes if one.group is group][:2]:
        yield Tile(f"success in {success.mode}", rate(success.mean))
    if not brief:
        yield from _background(group, train or test)
    if not by_mode:
        yield Tile("no evaluation yet", "–")


def _background(group: Group, result: Result | None) -> Iterator[Tile]:
    """What a return is to be seen against: the random policy's, and the time it took."""
    if result is not None and math.isfinite(result.random):
        yield Tile("random policy", number(result.random))
    seconds = [run.seconds for run in group.runs if run.seconds is not None]
    if seconds:
        each = " (mean)" if len(seconds) > 1 else ""
        yield Tile(f"wall time{each}", duration(float(np.mean(seconds))))


def _size(group: Group) -> str:
    """Seeds, decisions and frames of a group in words."""
    done = max(run.decisions_done for run in group.runs)
    run = group.runs[0]
    seeds = plural(len(group.runs), "seed")
    return f"{seeds} · {decisions(done, run.action_repeat)} · preset {run.preset}"


def _badges(group: Group) -> Iterator[str]:
    """What a reader must not miss."""
    if group.departures:
        yield "not a replication"
    unfinished = sum(not run.finished for run in group.runs)
    if unfinished:
        yield f"{unfinished} unfinished"


def _curves(group: Group) -> dict[str, str]:
    """The learning curves of a group, train and first test mode, as small as a word."""
    found = {
        mode: mean.curve
        for mode in ("train", group.test_mode)
        if mode and (mean := mean_curve(run.evaluation_curve(mode) for run in group.runs))
    }
    found = {mode: curve for mode, curve in found.items() if curve.decisions.size > 1}
    if not found:
        return {}
    right = max(curve.decisions[-1] for curve in found.values())
    heights = np.concatenate([curve.returns for curve in found.values()])
    bottom, top = min(0.0, float(heights.min())), max(float(heights.max()), 1e-9)
    return {mode: _polyline(curve, right, bottom, top) for mode, curve in found.items()}


def _polyline(curve: Curve, right: float, bottom: float, top: float) -> str:
    """The points of a curve in a box of 120 × 36."""
    spread = np.linspace(0, curve.decisions.size - 1, SPARK_POINTS).round().astype(int)
    chosen = np.unique(spread)
    x = 2 + 116 * curve.decisions[chosen] / max(right, 1e-9)
    y = 34 - 32 * (curve.returns[chosen] - bottom) / (top - bottom)
    return " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
