"""Learning curves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from svea.config.tasks import EPISODE_FRAMES, ROBOT_TASKS
from svea.envs import describe
from svea.results import Group, MeanCurve, mean_curve, plots, random_return
from svea.results.figures.exhibit import LEARNING, Exhibit, Looks, curve_caption, rows, series


def learning(task: str, groups: Sequence[Group], looks: Looks) -> Iterator[Exhibit]:
    """One figure with all modes for a single group; else one per mode with a line per group."""
    alone = len(groups) == 1
    modes = list(dict.fromkeys(mode for group in groups for mode in group.modes))
    drawn: list[tuple[Group, str, MeanCurve, plots.Series]] = []
    for group in groups:
        for mode in modes:
            band = mean_curve(run.evaluation_curve(mode) for run in group.runs)
            if band is None:
                continue
            color, line = looks[group.label]
            label, line = (_pictures(group, mode), len(drawn)) if alone else (group.label, line)
            episodes = [r.episode_curve() for r in group.runs] if alone and mode == "train" else []
            drawn.append((group, mode, band, series(label, band, (color, line), episodes)))
    top = max((_highest(one) for *_, one in drawn), default=0.0) * 1.05 or None
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
                [one for *_, one in chosen],
                title=f"{task}: {subject or 'learning curve'}",
                action_repeat=group.runs[0].action_repeat,
                random=random_return(group, subject or "train"),
                height=_return_of(task),
                top=top,  # the same for train and test: the eye compares them
            ),
            caption=curve_caption("mean return of evaluations", chosen),
            methods=tuple(group.method for group, *_ in chosen),
            numbers=[row for group, mode, band, _ in chosen for row in rows(group, mode, band)],
        )


def _pictures(group: Group, mode: str) -> str:
    """A mode as evaluations during training showed it; later ones may have had other data."""
    lines = (line for run in group.runs for line in run.metrics if line.get("mode") == mode)
    told = [line.get("provenance") for line in lines if line.get("kind") == "eval"]
    shown = [one for one in told if isinstance(one, dict) and one.keys() >= {"mode", "source"}]
    return describe(shown[-1]) if shown else mode


def _highest(one: plots.Series) -> float:
    """The highest point of a line, its band and its dots."""
    heights = [one.curve.returns, *(curve.returns for curve in one.episodes)]
    heights += [one.band[1]] if one.band else []
    return max((float(np.nanmax(h)) for h in heights if np.isfinite(h).any()), default=0.0)


def _return_of(task: str) -> str:
    """What the y axis shows; a step of a suite task earns 1 at most, and an episode has 1,000."""
    bounded = task in EPISODE_FRAMES and not task.startswith("lqr") and task not in ROBOT_TASKS
    return "episode return (of 1,000)" if bounded else "episode return"
