"""The figures of an experiment: curves, wall time, Q-values, intensities."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.figure import Figure

from svea.paper.experiments import Scale, Setting
from svea.paper.results import ExperimentResults
from svea.paper.tables import gaps_by_augmentation, mean_of_all
from svea.results import MeanCurve, mean_curve, over_hours, plots, stats
from svea.results.figures import exhibit
from svea.results.run import Curve, Run
from svea.results.tables import Record

Drawn = tuple[list[tuple[str, Figure]], list[Record]]


def figures(found: ExperimentResults) -> Drawn:
    """The figures of an experiment, by name, and the numbers that they alone show."""
    draw = _DRAW.get(found.experiment.kind)
    drawn, rows = draw(found) if draw else ([], [])
    return [(name, _marked(figure, found.scale)) for name, figure in drawn], rows


def _marked(figure: Figure, scale: Scale) -> Figure:
    """A figure that cannot be taken for the paper's size."""
    if scale.caveats:
        words = f"scaled to {scale.scale:g}" if scale.scale != 1 else "changed settings"
        note = f"{words}: not a replication"
        figure.suptitle(note, x=0.985, ha="right", fontsize=9, color="#b00020")
    return figure


def _curves(found: ExperimentResults) -> Drawn:
    """Return over training: a figure per task and mode, a line per setting."""
    return _curves_of(found, {"": found.experiment.settings}), []


def _curves_by_augmentation(found: ExperimentResults) -> Drawn:
    """Return over training: a figure per task, mode and augmentation, with the plain reference."""
    settings = found.experiment.settings
    strong = dict.fromkeys(s.augment for s in settings if s.augment != "none")
    panels = {one: tuple(s for s in settings if s.augment in (one, "none")) for one in strong}
    return _curves_of(found, panels), []


def _curves_of(
    found: ExperimentResults, panels: dict[str, tuple[Setting, ...]]
) -> list[tuple[str, Figure]]:
    """A figure per task, mode and panel; a panel is some settings under a name."""
    figures = []
    for task in found.experiment.tasks:
        for mode in dict.fromkeys(("train", *found.experiment.modes)):
            for name, settings in panels.items():
                curves = {
                    s: mean_curve(run.evaluation_curve(mode) for run in found.of(s, [task]))
                    for s in settings
                }
                if drawn := _series(curves):
                    repeat = _action_repeat(found, task)
                    title = f"{task} in {mode}" + (f": {name}" if name else "")
                    figure = plots.learning_curves(drawn, title=title, action_repeat=repeat)
                    words = [task, mode.replace(":", "-"), *([name] if name else [])]
                    figures.append(("-".join(words), figure))
    return figures


def _mean_curves(found: ExperimentResults) -> Drawn:
    """Return over training, averaged over tasks, against decisions and against wall time."""
    settings = found.experiment.settings
    curves = {s: mean_curve(r.evaluation_curve("train") for r in found.of(s)) for s in settings}
    figures = []
    title = "mean of tasks, training mode"
    if drawn := _series(curves):
        figures.append(("decisions", plots.learning_curves(drawn, title=title, action_repeat=None)))
    if drawn := _series({s: over_hours(found.of(s), "train") for s in settings}):
        figure = plots.learning_curves(drawn, title=title, action_repeat=None, width=plots.HOURS)
        figures.append(("hours", figure))
    rows = [
        {"what": "hours of a run", "setting": s.label, "mean": mean_of_all(_hours(found.of(s)))}
        for s in settings
    ]
    return figures, rows


def _variances(found: ExperimentResults) -> Drawn:
    """Variance of the Q-target over training, averaged over tasks."""
    settings = found.experiment.settings
    drawn = _series({s: mean_curve(run.variance_curve() for run in found.of(s)) for s in settings})
    if not drawn:
        return [], []
    figure = plots.learning_curves(
        drawn, title="mean Q-target variance", action_repeat=None, height="variance"
    )
    rows = [
        {"what": "q-target variance", "setting": one.label, "mode": f"decision {x:.0f}", "mean": y}
        for one in drawn
        for x, y in zip(one.curve.decisions, one.curve.returns, strict=True)
    ]
    return [("variance", figure)], rows


def _gaps(found: ExperimentResults) -> Drawn:
    """Q-value gap by augmentation, averaged over tasks and seeds."""
    setting = found.experiment.settings[0]
    gaps = gaps_by_augmentation(found.of(setting))
    if not gaps:
        return [], []
    names = list(gaps)
    ends = [stats.bootstrap_interval([np.array(gaps[name])], stats.mean) for name in names]
    means = [one.point for one in ends]
    bar = plots.Bar(setting.label, means, [one.low for one in ends], [one.high for one in ends])
    title = "mean |Q(s, a) − Q(aug(s), a)| of DrQ agents"
    figure = plots.grouped_bars([bar], names, title=title, height="gap")
    rows = [{"what": "q-gap", "mode": n, "mean": m} for n, m in zip(names, means, strict=True)]
    return [("gap", figure)], rows


def _intensities(found: ExperimentResults) -> Drawn:
    """Return against intensity, a figure per task."""
    return [(t, f) for t in found.experiment.tasks if (f := _intensity(found, [t], t))], []


def _mean_intensities(found: ExperimentResults) -> Drawn:
    """Return against intensity, averaged over tasks."""
    tasks = list(found.experiment.tasks)
    figure = _intensity(found, tasks, "mean of tasks")
    return ([("intensity", figure)] if figure else []), []


def _intensity(found: ExperimentResults, tasks: Sequence[str], title: str) -> Figure | None:
    """One figure over intensities; the paper's curves are read off a plot."""
    series = []
    looks = plots.looks([setting.method for setting in found.experiment.settings])
    for number, setting in enumerate(found.experiment.settings):
        modes = found.experiment.modes
        x = np.array([float(mode.partition(":")[2]) for mode in modes])
        ours = np.array(
            [mean_of_all([found.mean(t, setting, mode) for t in tasks]) for mode in modes]
        )
        known = [[found.papers(task, setting, mode) for task in tasks] for mode in modes]
        theirs = [[one.mean for one in row if one is not None] for row in known]
        paper = None
        if all(len(row) == len(tasks) for row in theirs):
            paper = Curve(x, np.array([np.mean(row) for row in theirs]))
        reached = np.isfinite(ours)
        if reached.any():
            curve = Curve(x[reached], ours[reached])
            series.append(plots.Series(setting.label, curve, None, (), *looks[number], paper))
    return plots.intensity_curves(series, title=title) if series else None


def _series(curves: dict[Setting, MeanCurve | None]) -> list[plots.Series]:
    """Mean curves with their bands."""
    looks = plots.looks([setting.method for setting in curves])
    return [
        exhibit.series(setting.label, mean, look)
        for look, (setting, mean) in zip(looks, curves.items(), strict=True)
        if mean is not None
    ]


def _hours(runs: Sequence[Run]) -> list[float]:
    """Wall time of finished runs."""
    return [run.seconds / 3600 for run in runs if run.finished and run.seconds]


def _action_repeat(found: ExperimentResults, task: str) -> int | None:
    """Frames per decision, as the runs say."""
    runs = [run for s in found.experiment.settings for run in found.of(s, [task])]
    return runs[0].action_repeat if runs else None


_DRAW: dict[str, Callable[[ExperimentResults], Drawn]] = {
    "curves": _curves,
    "curves-by-augmentation": _curves_by_augmentation,
    "mean-curves": _mean_curves,
    "q-variance": _variances,
    "q-gap": _gaps,
    "intensities": _intensities,
    "mean-intensities": _mean_intensities,
}
