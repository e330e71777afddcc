"""Returns per mode, over the intensity of distractions, and the robot's success."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from svea.config.modes import family, in_order
from svea.results import Group, Result, plots, random_return
from svea.results.figures.exhibit import (
    GENERALISATION,
    OVER,
    ROBOT,
    Exhibit,
    Heights,
    Looks,
    bars,
    owners,
)
from svea.results.run import Curve

DISTRACTING = "distracting_cs"
KINDS = ("geometry", "lights")
"""Groups of modes with figures of their own: many, and none of the paper's."""


def generalisation(
    task: str, groups: Sequence[Group], results: Sequence[Result], looks: Looks
) -> Iterator[Exhibit]:
    """Mean return per mode; kinds of modes, and intensities, have figures of their own."""
    apart = {r.mode for r in results if _intensity(r) is not None} if _spans(results) else set()
    results = [result for result in results if result.mode not in apart]
    usual = [result for result in results if family(result.mode) not in KINDS]
    if usual:
        yield _per_mode("generalisation", task, groups, usual, looks)
    train = [result for result in results if result.mode == "train"]
    for kind in KINDS:
        if here := [result for result in results if family(result.mode) == kind]:
            yield _per_mode(kind, task, groups, [*train, *here], looks)


def _per_mode(
    kind: str, task: str, groups: Sequence[Group], results: Sequence[Result], looks: Looks
) -> Exhibit:
    """Bars of the modes of a kind."""
    modes = in_order(result.mode for result in results)
    cells: Heights = {
        (id(r.group), r.mode): (r.mean, r.mean_over_worlds, r.paper if r.is_replication else None)
        for r in results
    }
    groups = owners(groups, cells)
    levels = [[random_return(group, mode) for group in groups] for mode in modes]
    random = [next((level for level in row if math.isfinite(level)), math.nan) for row in levels]
    caption = f"Whiskers: 95 % bootstrap interval of the mean {OVER}.{_without(results)}"
    if any(result.paper and result.is_replication for result in results):
        caption += " Diamonds: the paper."
    if any(result.paper and not result.is_replication for result in results):
        caption += " Where ours is not a replication, only the table has the paper's number."
    drawn, numbers = bars(groups, modes, looks, cells)
    title = f"{task}: return per mode" + (f", {kind}" if kind in KINDS else "")
    return Exhibit(
        name=f"{kind}-{task}",
        topic=GENERALISATION,
        task=task,
        figure=plots.grouped_bars(drawn, modes, title=title, random=random),
        caption=caption,
        methods=tuple(group.method for group in groups),
        numbers=numbers,
    )


def distracting(
    task: str, groups: Sequence[Group], results: Sequence[Result], looks: Looks
) -> Iterator[Exhibit]:
    """Return over the intensity of the distractions, where it was evaluated at several."""
    if not _spans(results):
        return
    series, methods, rows = [], [], []
    for group in groups:
        points = [(_intensity(r), r) for r in results if r.group is group]
        ordered = sorted([(x, r) for x, r in points if x is not None], key=lambda point: point[0])
        if not ordered:
            continue
        x = np.array([intensity for intensity, _ in ordered])
        here = [result for _, result in ordered]
        known = [(i, r.paper.mean) for i, r in ordered if r.paper]
        paper = Curve(*np.array(known).T) if known else None
        low = np.array([r.mean_over_worlds.low for r in here])
        high = np.array([r.mean_over_worlds.high for r in here])
        curve = Curve(x, np.array([r.mean for r in here]))
        series.append(plots.Series(group.label, curve, (low, high), (), *looks[group.label], paper))
        methods.append(group.method)
        rows += [
            {
                "task": task,
                "setting": group.label,
                "intensity": intensity,
                "mean": r.mean,
                "low": r.mean_over_worlds.low,
                "high": r.mean_over_worlds.high,
                "seeds": r.seeds,
                "paper": r.paper.mean if r.paper else math.nan,
            }
            for intensity, r in ordered
        ]
    caption = f"Bands: 95 % bootstrap interval of the mean {OVER}.{_without(results)}"
    if any(one.paper is not None for one in series):
        smaller = any(result.paper and not result.is_replication for result in results)
        caption += " Diamonds: the paper's curve, approximate (read off a plot)"
        caption += "; ours is not a replication, see the table." if smaller else "."
    yield Exhibit(
        name=f"distracting-{task}",
        topic=GENERALISATION,
        task=task,
        figure=plots.intensity_curves(series, title=f"{task}: {DISTRACTING} over intensity"),
        caption=caption,
        methods=tuple(methods),
        numbers=rows,
    )


def _without(results: Iterable[Result]) -> str:
    """Why some results have no interval, where any has none."""
    none = any(math.isnan(result.mean_over_worlds.low) for result in results)
    return " One seed in a single world or episode has none." if none else ""


def _spans(results: Iterable[Result]) -> bool:
    """Whether results cover several intensities of the distractions."""
    return len({_intensity(result) for result in results} - {None}) > 1


def _intensity(result: Result) -> float | None:
    """The intensity of a distracting mode, from its name or what its pictures were made with."""
    name, _, value = result.mode.partition(":")
    if name != DISTRACTING:
        return None
    made_with = result.group.runs[0].provenance().get(result.mode, {})
    try:
        return float(value or made_with["intensity"])
    except (KeyError, TypeError, ValueError):
        return None


def success(
    task: str, groups: Sequence[Group], successes: Sequence[Result], looks: Looks
) -> Iterator[Exhibit]:
    """Success rate per mode next to the paper's."""
    modes = list(dict.fromkeys(success.mode for success in successes))
    if not modes:
        return
    cells: Heights = {
        (id(s.group), s.mode): (s.mean, s.mean_over_worlds, s.paper) for s in successes
    }
    groups = owners(groups, cells)
    drawn, numbers = bars(groups, modes, looks, cells)
    caption = f"Whiskers: 95 % bootstrap interval {OVER}.{_without(successes)}"
    if any(success.paper for success in successes):
        caption += " Diamonds: the paper, on its own robot tasks, which were never released: ours "
        caption += "is not a replication."
    yield Exhibit(
        name=f"success-{task}",
        topic=ROBOT,
        task=task,
        figure=plots.grouped_bars(
            drawn, modes, title=f"{task}: success rate", height="share of episodes", top=1.04
        ),
        caption=caption,
        methods=tuple(group.method for group in groups),
        numbers=numbers,
    )
