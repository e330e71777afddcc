"""Q-targets over training, and the analyses of trained agents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from svea.results import Group, mean_curve, plots, stats
from svea.results.figures.exhibit import (
    Q_VALUES,
    Exhibit,
    Heights,
    Looks,
    bars,
    curve_caption,
    owners,
    rows,
    series,
)
from svea.results.run import Run, is_number

SPAN_FOR_LOG = 30.0  # a ratio of largest to smallest from which a linear axis hides the small ones


def variance_curves(task: str, groups: Sequence[Group], looks: Looks) -> Iterator[Exhibit]:
    """The variance of the Q-target over training."""
    drawn = []
    for group in groups:
        band = mean_curve(run.variance_curve() for run in group.runs)
        if band is not None:
            line = series(group.label, band, looks[group.label])
            drawn.append((group, "q_target_variance", band, line))
    if not any(band.curve.decisions.size > 1 for _, _, band, _ in drawn):
        return  # a point is not a curve
    heights = np.concatenate([band.curve.returns for _, _, band, _ in drawn])
    positive = heights[heights > 0]
    log = positive.size > 0 and bool(positive.max() > SPAN_FOR_LOG * positive.min())
    caption = curve_caption("variance of the Q-target over draws of the view it is fed", drawn)
    yield Exhibit(
        name=f"q-target-variance-{task}",
        topic=Q_VALUES,
        task=task,
        figure=plots.learning_curves(
            [line for *_, line in drawn],
            title=f"{task}: variance of the Q-target",
            action_repeat=drawn[0][0].runs[0].action_repeat,
            height="variance",
            log=log,
        ),
        caption=caption + (" Logarithmic scale." if log else ""),
        methods=tuple(group.method for group, *_ in drawn),
        numbers=[row for group, what, band, _ in drawn for row in rows(group, what, band)],
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
    (
        "tid",
        "mode",
        "score",
        "TID score by mode",
        "Overlap of the pixels that raise Q most with those that MuJoCo's segmentation gives the "
        "task, 0 to 1.",
    ),
    (
        "tid-action",
        "mode",
        "score",
        "TID score of the action by mode",
        "The same of the pixels that change the action's length most, for agents that are stored "
        "without Q-functions.",
    ),
)
"""File, category, value, title and caption of what `svea analyze` wrote."""


def q_bars(task: str, groups: Sequence[Group], looks: Looks) -> Iterator[Exhibit]:
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
        having = owners(groups, cells)
        drawn, numbers = bars(having, found, looks, cells)
        yield Exhibit(
            name=f"{name}-{task}",
            topic=Q_VALUES,
            task=task,
            figure=plots.grouped_bars(drawn, found, title=f"{task}: {title}", height=value),
            caption=f"{caption} Mean over seeds; whiskers: 95 % bootstrap interval over seeds.",
            methods=tuple(group.method for group in having),
            numbers=numbers,
        )


def _analysed(runs: Sequence[Run], name: str, category: str, value: str) -> dict[str, list[float]]:
    """The last value of each category in every run that has one."""
    found: dict[str, list[float]] = {}
    for run in runs:
        rows = [row for row in run.analyses.get(name, []) if is_number(row.get(value))]
        last = {str(row[category]): float(row[value]) for row in rows if category in row}
        for key, height in last.items():
            found.setdefault(key, []).append(height)
    return found
