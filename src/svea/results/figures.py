"""Which figures a report has: each with its caption, its groups and the numbers it draws.

`plots` knows how to draw, `summary` what was reached; this file chooses what is shown in which
figure. The page, `--figures` and the paper's pages show the same objects, so they cannot disagree.
"""

import contextlib
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image

from svea.config.factors import at
from svea.config.modes import EPISODE_FRAMES, ROBOT_TASKS, family, in_order
from svea.envs import describe
from svea.results import plots, stats
from svea.results.factors import HALF, MOST, Response
from svea.results.groups import Group
from svea.results.plots import Bar, Series
from svea.results.read import Curve, Run, is_number
from svea.results.summary import MeanCurve, Result, mean_curve, over_hours, random_return
from svea.results.tables import Record
from svea.runs import layout

LEARNING, GENERALISATION, ROBOT, Q_VALUES = "learning", "generalisation", "robot", "q-values"
FACTORS = "factors"
"""The topics, in the order of the page."""
OVER = "over worlds (train: episodes), and over seeds where there are several"
DISTRACTING = "distracting_cs"
KINDS = ("geometry", "lights")
"""Groups of modes with figures of their own: many, and none of the paper's."""
SPAN_FOR_LOG = 30.0  # a ratio of largest to smallest from which a linear axis hides the small ones

Looks = Mapping[str, tuple[int, int]]
"""By the label of a setting: its colour, which is its method's, and its kind of line."""
Heights = dict[tuple[Group, str], tuple[float, float, float, float]]
"""By group and category: a value, the ends of its interval, and the paper's."""
Lines = Sequence[tuple[Group, str, MeanCurve, Series]]
"""Whose curve, of which mode or quantity, and how it is drawn."""


@dataclass(frozen=True, eq=False)
class ReportFigure:
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


def report_figures(
    groups: Sequence[Group], results: Sequence[Result], successes: Sequence[Result]
) -> list[ReportFigure]:
    """Every figure that the runs have numbers for, task by task."""
    looks = looks_of(groups)
    found: list[ReportFigure] = []
    for task in dict.fromkeys(group.task for group in groups):
        members = [group for group in groups if group.task == task]
        here, there = ([r for r in rs if r.group.task == task] for rs in (results, successes))
        found += learning(task, members, looks)
        found += generalisation(task, members, here, looks)
        found += distracting(task, members, here, looks)
        found += [_per_mode("success", task, members, there, looks)] if there else []
        found += variance_curves(task, members, looks)
        found += q_bars(task, members, looks)
    return found


def looks_of(groups: Sequence[Group]) -> Looks:
    """A method has its colour in every report; what shares a colour differs by its line."""
    methods = {group.label: group.method for group in groups}
    return dict(zip(methods, plots.looks(list(methods.values())), strict=True))


# Curves -------------------------------------------------------------------------------------------


def learning(
    task: str, groups: Sequence[Group], looks: Looks, modes: Sequence[str] = ()
) -> Iterator[ReportFigure]:
    """One figure with all modes for a single group; else one per mode with a line per group."""
    alone = len(groups) == 1 and not modes
    modes = modes or list(dict.fromkeys(mode for group in groups for mode in group.modes))
    drawn: list[tuple[Group, str, MeanCurve, Series]] = []
    for group, mode in itertools.product(groups, modes):
        if band := mean_curve(run.evaluation_curve(mode) for run in group.runs):
            one = _line(group.label, band, looks)
            if alone:
                dots = [run.episode_curve() for run in group.runs] if mode == "train" else []
                one = replace(one, label=_pictures(group, mode), line=len(drawn), episodes=dots)
            drawn.append((group, mode, band, one))
    top = max((_highest(one) for *_, one in drawn), default=0.0) * 1.05 or None
    bounded = task in EPISODE_FRAMES and not task.startswith("lqr") and task not in ROBOT_TASKS
    for subject in [""] if alone else modes:
        if chosen := [one for one in drawn if subject in ("", one[1])]:
            about = "-".join(filter(None, ("learning", task, subject))), LEARNING, task
            yield _of_lines(
                *(*about, chosen, "mean return of evaluations"),
                title=f"{task}: {subject or 'learning curve'}",
                random=random_return(chosen[0][0], subject or "train"),
                height="episode return (of 1,000)" if bounded else "episode return",
                top=top,  # the same for train and test: the eye compares them
            )


def wall_time(task: str, groups: Sequence[Group], mode: str, looks: Looks) -> Figure | None:
    """Return against hours of wall time; None where no group was evaluated during training."""
    curves = {group.label: over_hours(group.runs, mode) for group in groups}
    drawn = [_line(label, band, looks) for label, band in curves.items() if band]
    if not drawn:
        return None
    return plots.curves(drawn, title=f"{task}: {mode}", width=plots.HOURS)


def variance_curves(task: str, groups: Sequence[Group], looks: Looks) -> Iterator[ReportFigure]:
    """The variance of the Q-target over training."""
    key = "q_target_variance"
    drawn = [
        (group, key, band, _line(group.label, band, looks))
        for group in groups
        if (band := mean_curve(run.evaluation_curve(None, key) for run in group.runs))
    ]
    if not any(band.curve.decisions.size > 1 for _, _, band, _ in drawn):
        return  # a point is not a curve
    heights = np.concatenate([band.curve.returns for _, _, band, _ in drawn])
    positive = heights[heights > 0]
    log = positive.size > 0 and bool(positive.max() > SPAN_FOR_LOG * positive.min())
    what = "variance of the Q-target over draws of the view it is fed"
    about, title = f"q-target-variance-{task}", f"{task}: variance of the Q-target"
    yield _of_lines(about, Q_VALUES, task, drawn, what, title=title, height="variance", log=log)


def _line(label: str, band: MeanCurve, looks: Looks) -> Series:
    return Series(label, band.curve, band.band, (), *looks[label])


def _of_lines(
    name: str, topic: str, task: str, chosen: Lines, what: str, log: bool = False, **drawn: Any
) -> ReportFigure:
    """A figure of curves: what its lines, bands and dots are, and their points."""
    several = any(band.seeds > 1 for _, _, band, _ in chosen)
    spread = "bands: 95 % bootstrap interval over seeds" if several else "one seed, no band"
    dots = "; dots: training episodes" if any(len(s.episodes) for *_, s in chosen) else ""
    repeat = chosen[0][0].runs[0].action_repeat
    figure = plots.curves([line for *_, line in chosen], action_repeat=repeat, log=log, **drawn)
    methods = tuple(group.method for group, *_ in chosen)
    numbers = [row for group, mode, band, _ in chosen for row in _points(group, mode, band)]
    caption = f"Lines: {what}; {spread}{dots}." + (" Logarithmic scale." if log else "")
    return ReportFigure(name, topic, task, figure, caption, methods, numbers)


def _points(group: Group, mode: str, band: MeanCurve) -> Iterator[Record]:
    columns = (band.curve.decisions, band.curve.returns, band.std, *band.band)
    names = ("decision", "mean", "std_over_seeds", "low", "high")
    who: Record = {"task": group.task, "setting": group.label, "mode": mode, "seeds": band.seeds}
    for values in zip(*(column.tolist() for column in columns), strict=True):
        yield who | dict(zip(names, values, strict=True))


def _pictures(group: Group, mode: str) -> str:
    """A mode as evaluations during training showed it; later ones may have had other data."""
    told = [one.get("provenance") for run in group.runs for one in run.evaluations
            if one.get("mode") == mode]  # fmt: skip
    shown = [one for one in told if isinstance(one, dict) and one.keys() >= {"mode", "source"}]
    return describe(shown[-1]) if shown else mode


def _highest(one: Series) -> float:
    """The highest point of a line, its band and its dots."""
    heights = [one.curve.returns, *(curve.returns for curve in one.episodes)]
    heights += [one.band[1]] if one.band else []
    return max((float(np.nanmax(h)) for h in heights if np.isfinite(h).any()), default=0.0)


# Bars and intensities -----------------------------------------------------------------------------


def generalisation(
    task: str, groups: Sequence[Group], results: Sequence[Result], looks: Looks
) -> Iterator[ReportFigure]:
    """Mean return per mode; kinds of modes, and intensities, have figures of their own."""
    apart = {r.mode for r in results if _intensity(r) is not None} if _spans(results) else set()
    results = [result for result in results if result.mode not in apart]
    if usual := [result for result in results if family(result.mode) not in KINDS]:
        yield _per_mode("generalisation", task, groups, usual, looks)
    train = [result for result in results if result.mode == "train"]
    for kind in KINDS:
        if here := [result for result in results if family(result.mode) == kind]:
            yield _per_mode(kind, task, groups, [*train, *here], looks)


def _per_mode(
    kind: str, task: str, groups: Sequence[Group], results: Sequence[Result], looks: Looks
) -> ReportFigure:
    """Bars of returns in the modes of a kind, or of success in all modes, with the paper's."""
    modes, is_success = in_order(result.mode for result in results), kind == "success"
    theirs = [r for r in results if r.paper and (r.is_replication or is_success)]
    cells: Heights = {}
    for r in results:
        paper = r.paper.mean if r.paper and r in theirs else math.nan
        cells[r.group, r.mode] = (r.mean, r.interval.low, r.interval.high, paper)
    caption = f"Whiskers: 95 % bootstrap interval of the mean {OVER}.{_without(results)}"
    if theirs:
        which = ", on robot tasks of its own: ours is not a replication" if is_success else ""
        caption += f" Diamonds: the paper{which}."
    if any(result.paper and result not in theirs for result in results):
        caption += " Where ours is not a replication, only the table has the paper's number."
    if is_success:
        about = f"{task}: success rate", groups, modes, looks, cells
        return _bars(kind, ROBOT, task, caption, *about, height="share of episodes", top=1.04)
    having = dict.fromkeys(result.group for result in results)
    levels = [[random_return(group, mode) for group in having] for mode in modes]
    random = [next(filter(math.isfinite, row), math.nan) for row in levels]
    title = f"{task}: return per mode" + (f", {kind}" if kind in KINDS else "")
    about = title, groups, modes, looks, cells
    return _bars(kind, GENERALISATION, task, caption, *about, random=random)


_ANALYSES = {
    ("q-variance", "view", "variance", "variance of the Q-target by view"): (
        "Variance over draws of a view: the one that feeds the run's Q-target, and its strong one."
    ),
    ("q-gap", "augment", "gap", "Q-value gap by augmentation"): (
        "Mean |Q(s, a) − Q(augmented s, a)| of the trained agent."
    ),
    ("tid", "mode", "score", "TID score by mode"): (
        "Overlap of the pixels that raise Q most with those that MuJoCo's segmentation gives the "
        "task, 0 to 1."
    ),
    ("tid-action", "mode", "score", "TID score of the action by mode"): (
        "The same of the pixels that change the action's length most, for agents that are stored "
        "without Q-functions."
    ),
}
"""Captions of what `svea analyze` wrote, by file, category, value and title."""


def q_bars(task: str, groups: Sequence[Group], looks: Looks) -> Iterator[ReportFigure]:
    """The analyses of trained agents: variance by view, gap by augmentation."""
    for (name, category, value, title), about in _ANALYSES.items():
        cells: Heights = {}
        for group in groups:
            for key, values in analysed(group.runs, name, category, value).items():
                ends = stats.bootstrap_interval([values], stats.mean)
                cells[group, key] = (float(np.mean(values)), ends.low, ends.high, math.nan)
        if cells:
            found = list(dict.fromkeys(key for _, key in cells))
            caption = f"{about} Mean over seeds; whiskers: 95 % bootstrap interval over seeds."
            drawn = f"{task}: {title}", groups, found, looks, cells
            yield _bars(name, Q_VALUES, task, caption, *drawn, height=value)


def analysed(runs: Sequence[Run], name: str, category: str, value: str) -> dict[str, list[float]]:
    """The last value of each category in every run that has one."""
    found: dict[str, list[float]] = {}
    for run in runs:
        rows = [row for row in run.analyses.get(name, []) if is_number(row.get(value))]
        last = {str(row[category]): float(row[value]) for row in rows if category in row}
        for key, height in last.items():
            found.setdefault(key, []).append(height)
    return found


def distracting(
    task: str, groups: Sequence[Group], results: Sequence[Result], looks: Looks
) -> Iterator[ReportFigure]:
    """Return over the intensity of the distractions, where it was evaluated at several."""
    if not _spans(results):
        return
    series, rows = [], list[Record]()
    names = ("intensity", "mean", "low", "high", "paper", "seeds")
    placed: dict[Group, list[tuple[float, ...]]] = {group: [] for group in groups}
    for r in results:
        if (at := _intensity(r)) is not None:
            paper = r.paper.mean if r.paper else math.nan
            found = (at, r.mean, r.interval.low, r.interval.high, paper, r.seeds)
            placed[r.group].append(found)
    groups = [group for group in groups if placed[group]]
    for group in groups:
        numbers = sorted(placed[group])
        x, mean, low, high, theirs, _ = np.array(numbers).T
        known = np.isfinite(theirs)
        marks = Curve(x[known], theirs[known]) if known.any() else None
        look = looks[group.label]
        series.append(Series(group.label, Curve(x, mean), (low, high), (), *look, marks))
        who = {"task": task, "setting": group.label}
        rows += [who | dict(zip(names, row, strict=True)) for row in numbers]
    caption = f"Bands: 95 % bootstrap interval of the mean {OVER}.{_without(results)}"
    if any(one.paper is not None for one in series):
        smaller = any(result.paper and not result.is_replication for result in results)
        caption += " Diamonds: the paper's curve, approximate (read off a plot)"
        caption += "; ours is not a replication, see the table." if smaller else "."
    title = f"{task}: {DISTRACTING} over intensity"
    figure = plots.curves(series, title=title, width=plots.INTENSITY, height="mean episode return")
    about, methods = (f"distracting-{task}", GENERALISATION, task), (g.method for g in groups)
    yield ReportFigure(*about, figure, caption, tuple(methods), rows)


def factor_figures(found: Sequence[Response], looks: Looks) -> Iterator[ReportFigure]:
    """Return over each factor with all agents; what breaks one soonest comes first."""
    panels: dict[tuple[str, str], list[Response]] = {}
    for one in sorted(found, key=lambda one: (one.group.task, one.order)):
        panels.setdefault((one.group.task, one.factor.name), []).append(one)
    for (task, name), several in panels.items():
        factor = several[0].factor
        several = sorted(several, key=lambda one: one.group.label)
        series = [
            Series(one.group.label, Curve(one.values, one.means), one.band, (),
                   *looks[one.group.label])
            for one in several
        ]  # fmt: skip
        figure = plots.curves(
            series, title=f"{task}: {name}", width=f"{name}, {factor.unit}",
            height="mean episode return",
        )  # fmt: skip
        plots.add_worlds(figure, factor.training, worlds_of(several))
        caption = (
            f"{factor.about} Bands: 95 % bootstrap interval of the mean over episodes, and over "
            "seeds where there are several. Dotted: the training value. Pictures: the world at "
            "both ends, and where an agent has lost half of its return first."
        )
        rows = [row for one in several for row in response_rows(one)]
        methods = tuple(one.group.method for one in several)
        about = f"factor-{task}-{name}", FACTORS, task
        yield ReportFigure(*about, figure, caption, methods, rows)


def response_rows(one: Response) -> Iterator[Record]:
    """The points of a curve, and the ends of its tolerances."""
    who: Record = {"task": one.group.task, "setting": one.group.label, "factor": one.factor.name}
    names = ("value", "mean", "low", "high", "success")
    for row in zip(one.values, one.means, *one.band, one.success, strict=True):
        yield who | dict(zip(names, map(float, row), strict=True))
    for share in (MOST, HALF):
        for end, side in zip(one.ends(share), ("lower", "upper"), strict=True):
            kept = {"keeps": share, "end": side, "value": end.point}
            yield who | kept | {"low": end.low, "high": end.high}


def worlds_of(several: Sequence[Response]) -> list[tuple[float, NDArray[np.uint8]]]:
    """The pictures that `svea eval --vary` left, at the ends and where half is lost first."""
    values = sorted({float(v) for one in several for v in one.values})
    first = min(several, key=lambda one: one.order)
    wanted = {values[0], values[-1]}
    if (point := first.breaks_at) is not None:
        wanted.add(min(values, key=lambda value: abs(value - point)))
    found = []
    for value in sorted(wanted):
        mode = at(first.factor.name, value)
        files = [layout.factor_file(run.folder, mode) for one in several for run in one.group.runs]
        if file := next((file for file in files if file.is_file()), None):
            with contextlib.suppress(OSError, ValueError):
                found.append((value, np.asarray(Image.open(file).convert("RGB"))))
    return found


def _without(results: Iterable[Result]) -> str:
    """Why some results have no interval, where any has none."""
    none = any(math.isnan(result.interval.low) for result in results)
    return " One seed in a single world or episode has none." if none else ""


def _spans(results: Iterable[Result]) -> bool:
    """Whether results cover several intensities of the distractions."""
    return len({_intensity(result) for result in results} - {None}) > 1


def _intensity(result: Result) -> float | None:
    """The intensity of a distracting mode, from its name or what its pictures were made with."""
    name, _, value = result.mode.partition(":")
    if name != DISTRACTING:
        return None
    made_with = result.group.runs[0].provenance.get(result.mode, {})
    try:
        return float(value or made_with["intensity"])
    except (KeyError, TypeError, ValueError):
        return None


def _bars(
    kind: str,
    topic: str,
    task: str,
    caption: str,
    title: str,
    groups: Sequence[Group],
    categories: Sequence[str],
    looks: Looks,
    cells: Heights,
    **drawn: Any,
) -> ReportFigure:
    """A figure with the bars of each group that has any; `drawn` is for `grouped_bars`."""
    having = {owner for owner, _ in cells}
    groups = [group for group in groups if group in having]
    names = ("category", "value", "low", "high", "paper")
    bars, numbers = [], list[Record]()
    for group in groups:
        columns = [(at, *cells.get((group, at), (math.nan,) * 4)) for at in categories]
        _, values, lows, highs, paper = zip(*columns, strict=True)
        bars.append(Bar(group.label, values, lows, highs, *looks[group.label], paper))
        rows = [dict(zip(names, row, strict=True)) for row in columns if math.isfinite(row[1])]
        numbers += [{"task": group.task, "setting": group.label} | row for row in rows]
    methods = tuple(group.method for group in groups)
    figure = plots.grouped_bars(bars, categories, title=title, **drawn)
    return ReportFigure(f"{kind}-{task}", topic, task, figure, caption, methods, numbers)
