"""Which figures a report has: each with its caption, its owners and the numbers it draws.

`plots` knows how to draw, `results` what was reached; this file chooses what is shown in which
figure. The page and `--figures` show the same objects, so they cannot disagree.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from svea.envs.modes import family, in_order
from svea.evidence import plots, stats
from svea.evidence.bars import Heights, bars_of, owners_of
from svea.evidence.results import Group, MeanCurve, Result, mean_curve, random_return
from svea.evidence.run import Curve, Run
from svea.evidence.tables import Record

LEARNING, GENERALISATION, ROBOT, Q_VALUES = "learning", "generalisation", "robot", "q-values"
"""The topics, in the order of the page."""

DISTRACTING = "distracting_cs"
KINDS = ("geometry", "lights")
"""Groups of modes with figures of their own: many, and none of the paper's."""

OVER = "over seeds and worlds (train: seeds and episodes)"
SPAN_FOR_LOG = 30.0  # a ratio of largest to smallest from which a linear axis hides the small ones


@dataclass(frozen=True, eq=False)
class Exhibit:
    """One figure, with all that a page or a folder says about it."""

    name: str
    """For a file, and unique once its characters are safe there."""
    topic: str
    task: str
    figure: Figure
    caption: str
    methods: tuple[str, ...]
    """The method that series n belongs to."""
    numbers: list[Record]


def exhibits(
    groups: Sequence[Group],
    results: Sequence[Result],
    successes: Sequence[Result],
) -> list[Exhibit]:
    """Every figure that the runs have numbers for, task by task."""
    labels = dict.fromkeys(group.label for group in groups)
    colors = {label: number for number, label in enumerate(labels)}  # the same on every figure
    found: list[Exhibit] = []
    for task in dict.fromkeys(group.task for group in groups):
        members = [group for group in groups if group.task == task]
        here = [result for result in results if result.group.task == task]
        there = [success for success in successes if success.group.task == task]
        found += _learning(task, members, colors)
        found += _generalisation(task, members, here, colors)
        found += _distracting(task, members, here, colors)
        found += _success(task, members, there, colors)
        found += _variance_curves(task, members, colors)
        found += _q_bars(task, members, colors)
    return found


# --- Learning


def _learning(task: str, groups: Sequence[Group], colors: dict[str, int]) -> Iterator[Exhibit]:
    """One figure with all modes for a single group; else one per mode with a line per group."""
    alone = len(groups) == 1
    modes = list(dict.fromkeys(mode for group in groups for mode in group.modes))
    drawn: list[tuple[Group, str, MeanCurve, plots.Series]] = []
    for group in groups:
        for mode in modes:
            band = mean_curve(run.evaluation_curve(mode) for run in group.runs)
            if band is None:
                continue
            label, color = (mode, len(drawn)) if alone else (group.label, colors[group.label])
            episodes = [r.episode_curve() for r in group.runs] if alone and mode == "train" else []
            drawn.append((group, mode, band, _series(label, band, color, alone, episodes)))
    for subject in [None] if alone else modes:
        chosen = [one for one in drawn if subject in (None, one[1])]
        if not chosen:
            continue
        group = chosen[0][0]
        yield Exhibit(
            name=f"learning-{task}" + (f"-{subject}" if subject else ""),
            topic=LEARNING,
            task=task,
            figure=plots.learning_curves(
                [series for *_, series in chosen],
                title=f"{task}: {subject or 'learning curve'}",
                action_repeat=group.runs[0].action_repeat,
                random=random_return(group, subject or "train"),
            ),
            caption=_curve_caption("mean return of evaluations", chosen),
            methods=tuple(group.method for group, *_ in chosen),
            numbers=[row for group, mode, band, _ in chosen for row in _rows(group, mode, band)],
        )


def _series(
    label: str, band: MeanCurve, color: int, alone: bool, episodes: Sequence[Curve] = ()
) -> plots.Series:
    """A line with its band; a colour that is used a second time is dashed."""
    dashed = not alone and color >= len(plots.PALETTE)
    return plots.Series(label, band.curve, band.interval(), episodes, color, dashed)


def _curve_caption(what: str, chosen: Sequence[tuple[Group, str, MeanCurve, plots.Series]]) -> str:
    """What lines, bands and dots are."""
    several = any(band.seeds > 1 for _, _, band, _ in chosen)
    spread = "bands: 95 % bootstrap interval over seeds" if several else "one seed, no band"
    dots = "; dots: training episodes" if any(len(s.episodes) for *_, s in chosen) else ""
    return f"Lines: {what}; {spread}{dots}."


def _rows(group: Group, mode: str, band: MeanCurve) -> Iterator[Record]:
    """The points of a curve."""
    columns = (band.curve.decisions, band.curve.returns, band.std, *band.interval())
    names = ("decision", "mean", "std_over_seeds", "low", "high")
    who: Record = {"task": group.task, "setting": group.label, "mode": mode, "seeds": band.seeds}
    for values in zip(*(column.tolist() for column in columns), strict=True):
        yield who | dict(zip(names, values, strict=True))


# --- Generalisation


def _generalisation(
    task: str, groups: Sequence[Group], results: Sequence[Result], colors: dict[str, int]
) -> Iterator[Exhibit]:
    """Mean return per mode; kinds of modes, and intensities, have figures of their own."""
    apart = {r.mode for r in results if _intensity(r) is not None} if _spans(results) else set()
    results = [result for result in results if result.mode not in apart]
    usual = [result for result in results if family(result.mode) not in KINDS]
    if usual:
        yield _per_mode("generalisation", task, groups, usual, colors)
    train = [result for result in results if result.mode == "train"]
    for kind in KINDS:
        if here := [result for result in results if family(result.mode) == kind]:
            yield _per_mode(kind, task, groups, [*train, *here], colors)


def _per_mode(
    kind: str,
    task: str,
    groups: Sequence[Group],
    results: Sequence[Result],
    colors: dict[str, int],
) -> Exhibit:
    """Bars of the modes of a kind."""
    modes = in_order(result.mode for result in results)
    cells: Heights = {(id(r.group), r.mode): (r.mean, r.mean_over_worlds, r.paper) for r in results}
    groups = owners_of(groups, cells)
    levels = [[random_return(group, mode) for group in groups] for mode in modes]
    random = [next((level for level in row if math.isfinite(level)), math.nan) for row in levels]
    caption = f"Whiskers: 95 % bootstrap interval of the mean {OVER}."
    if any(result.paper for result in results):
        caption += " Diamonds: the paper, 500,000 decisions × 5 seeds"
        smaller = any(result.paper and not result.is_replication for result in results)
        caption += "; ours is not a replication, see the table." if smaller else "."
    bars, numbers = bars_of(groups, modes, colors, cells)
    title = f"{task}: return per mode" + (f", {kind}" if kind in KINDS else "")
    return Exhibit(
        name=f"{kind}-{task}",
        topic=GENERALISATION,
        task=task,
        figure=plots.grouped_bars(bars, modes, title=title, random=random),
        caption=caption,
        methods=tuple(group.method for group in groups),
        numbers=numbers,
    )


def _distracting(
    task: str, groups: Sequence[Group], results: Sequence[Result], colors: dict[str, int]
) -> Iterator[Exhibit]:
    """Return over the intensity of the distractions, where it was evaluated at several."""
    if not _spans(results):
        return
    series, owners, rows = [], [], []
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
        dashed = colors[group.label] >= len(plots.PALETTE)
        series.append(
            plots.Series(group.label, curve, (low, high), (), colors[group.label], dashed, paper)
        )
        owners.append(group.method)
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
    caption = f"Bands: 95 % bootstrap interval of the mean {OVER}."
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
        methods=tuple(owners),
        numbers=rows,
    )


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


# --- Robot


def _success(
    task: str, groups: Sequence[Group], successes: Sequence[Result], colors: dict[str, int]
) -> Iterator[Exhibit]:
    """Success rate per mode next to the paper's."""
    modes = list(dict.fromkeys(success.mode for success in successes))
    if not modes:
        return
    cells: Heights = {
        (id(s.group), s.mode): (s.mean, s.mean_over_worlds, s.paper) for s in successes
    }
    groups = owners_of(groups, cells)
    bars, numbers = bars_of(groups, modes, colors, cells)
    caption = f"Whiskers: 95 % bootstrap interval {OVER}."
    if any(success.paper for success in successes):
        caption += " Diamonds: the paper, on its own robot tasks, which were never released: ours "
        caption += "is not a replication."
    yield Exhibit(
        name=f"success-{task}",
        topic=ROBOT,
        task=task,
        figure=plots.grouped_bars(
            bars, modes, title=f"{task}: success rate", height="share of episodes", top=1.04
        ),
        caption=caption,
        methods=tuple(group.method for group in groups),
        numbers=numbers,
    )


# --- Q-values


def _variance_curves(
    task: str, groups: Sequence[Group], colors: dict[str, int]
) -> Iterator[Exhibit]:
    """The variance of the Q-target over training."""
    drawn = []
    for group in groups:
        band = mean_curve(run.variance_curve() for run in group.runs)
        if band is not None:
            series = _series(group.label, band, colors[group.label], alone=False)
            drawn.append((group, "q_target_variance", band, series))
    if not drawn:
        return
    heights = np.concatenate([band.curve.returns for _, _, band, _ in drawn])
    positive = heights[heights > 0]
    log = positive.size > 0 and bool(positive.max() > SPAN_FOR_LOG * positive.min())
    caption = _curve_caption("variance of the Q-target over draws of the view it is fed", drawn)
    yield Exhibit(
        name=f"q-target-variance-{task}",
        topic=Q_VALUES,
        task=task,
        figure=plots.learning_curves(
            [series for *_, series in drawn],
            title=f"{task}: variance of the Q-target",
            action_repeat=drawn[0][0].runs[0].action_repeat,
            height="variance",
            log=log,
        ),
        caption=caption + (" Logarithmic scale." if log else ""),
        methods=tuple(group.method for group, *_ in drawn),
        numbers=[row for group, what, band, _ in drawn for row in _rows(group, what, band)],
    )


_ANALYSES = (
    (
        "q-variance",
        "view",
        "variance",
        "variance of the Q-target by view",
        "Variance over draws of a view: the one that feeds the run's Q-target, and its strong one.",
    ),
    (
        "q-gap",
        "augment",
        "gap",
        "Q-value gap by augmentation",
        "Mean |Q(s, a) − Q(augmented s, a)| of the trained agent.",
    ),
)
"""File, category, value, title and caption of what `svea analyze` wrote."""


def _q_bars(task: str, groups: Sequence[Group], colors: dict[str, int]) -> Iterator[Exhibit]:
    """The analyses of trained agents: variance by view, gap by augmentation."""
    for name, category, value, title, caption in _ANALYSES:
        cells: Heights = {}
        for group in groups:
            for key, values in _analysed(group.runs, name, category, value).items():
                interval = stats.bootstrap_interval([values], stats.mean)
                cells[id(group), key] = (float(np.mean(values)), interval, None)
        if not cells:
            continue
        found = list(dict.fromkeys(key for _, key in cells))
        owners = owners_of(groups, cells)
        bars, numbers = bars_of(owners, found, colors, cells)
        yield Exhibit(
            name=f"{name}-{task}",
            topic=Q_VALUES,
            task=task,
            figure=plots.grouped_bars(bars, found, title=f"{task}: {title}", height=value),
            caption=f"{caption} Mean over seeds; whiskers: 95 % bootstrap interval over seeds.",
            methods=tuple(group.method for group in owners),
            numbers=numbers,
        )


def _analysed(runs: Sequence[Run], name: str, category: str, value: str) -> dict[str, list[float]]:
    """The last value of each category in every run that has one."""
    found: dict[str, list[float]] = {}
    for run in runs:
        rows = [row for row in run.analyses.get(name, []) if _is_finite(row.get(value))]
        last = {str(row[category]): float(row[value]) for row in rows if category in row}
        for key, height in last.items():
            found.setdefault(key, []).append(height)
    return found


def _is_finite(value: object) -> bool:
    """Whether a JSON value is a number to draw."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
