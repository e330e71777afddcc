"""The paper's tables and figures drawn from run folders, with the paper's own numbers beside ours.

Every rendering is a Markdown page with its PNG files and a CSV of the numbers behind them, and says
what keeps it from being a replication: a smaller scale, changed options, missing runs, few seeds.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from svea.errors import UserError
from svea.evidence import plots, published, results, stats
from svea.evidence.read import Curve, Run, read_run
from svea.files import replace_json
from svea.runs import layout
from svea.studies import PlannedRun, read_progress
from svea.studies.paper.experiments import Experiment, Scale, Setting

Row = dict[str, Any]


@dataclass(frozen=True)
class Cell:
    """Our figure for a task, setting and mode, and the paper's."""

    task: str
    setting: Setting
    mode: str
    seeds: int
    mean: float
    std: float
    paper: published.PaperResult | None

    @property
    def text(self) -> str:
        """Ours, then the paper's in brackets; `–` where there is none."""
        digits = 2 if self.paper is not None and self.paper.unit == "success" else 0
        ours = "–" if math.isnan(self.mean) else _spread(self.mean, self.std, digits)
        if self.paper is None:
            return ours
        about = "~" if self.paper.approximate else ""
        return f"{ours} [{about}{_spread(self.paper.mean, self.paper.std, digits)}]"


@dataclass
class Evidence:
    """The runs of an experiment that exist, finished or not."""

    experiment: Experiment
    scale: Scale
    runs: dict[tuple[str, Setting], list[Run]]
    planned: int
    finished: int
    problems: list[str] = field(default_factory=list)

    def cell(self, task: str, setting: Setting, mode: str) -> Cell:
        """Mean and deviation over seeds of the final agents."""
        read = _successes if self.experiment.unit == "success" else _returns
        values = [read(run, mode) for run in self.runs.get((task, setting), [])]
        values = [one for one in values if one.size]
        mean, std = stats.mean_and_std_over_seeds(values)
        who = (setting.method, setting.augment, setting.encoder)
        paper = published.lookup(task, mode, *who) if setting.views == 1 else None
        if paper is not None and paper.unit != self.experiment.unit:
            paper = None
        return Cell(task, setting, mode, len(values), mean, std, paper)

    def of(self, setting: Setting, tasks: Iterable[str] | None = None) -> list[Run]:
        """The runs of a setting, on some tasks or all."""
        wanted = self.experiment.tasks if tasks is None else tuple(tasks)
        return [run for task in wanted for run in self.runs.get((task, setting), [])]

    @property
    def caveats(self) -> list[str]:
        """What a reader must know, the gravest first."""
        found = self.scale.caveats + list(self.problems)
        if self.finished < self.planned:
            found.append(f"INCOMPLETE: {self.finished} of {self.planned} runs are finished")
        present = [len(runs) for runs in self.runs.values() if runs]
        if present and min(present) < published.SEEDS:
            found.append(f"few seeds: {min(present)} where the paper has {published.SEEDS}")
        told = {
            line
            for runs in self.runs.values()
            if runs
            for line in results.caveats(results.Group(tuple(runs), ""))
            if not line.startswith(("few seeds", "seed ")) and self._concerns(line)
        }
        return found + sorted(told)

    def _concerns(self, caveat: str) -> bool:
        """Whether a caveat about pictures is about a mode that is shown here."""
        modes, colon, rest = caveat.rpartition(": procedural")
        shown = {"train", *self.experiment.modes}
        return not colon or not rest or any(mode in shown for mode in modes.split(", "))


def gather(experiment: Experiment, scale: Scale, folder: Path) -> Evidence:
    """Read what there is of an experiment's runs."""
    cells = experiment.runs(scale)
    planned = [run for cell in cells.values() for run in cell]
    problems: list[str] = []
    runs = {key: _read(folder, cell, problems) for key, cell in cells.items()}
    finished = sum(read_progress(folder / "runs" / run.name, run).done for run in planned)
    return Evidence(experiment, scale, runs, len(planned), finished, problems)


def render(evidence: Evidence, out: Path) -> tuple[Path, str]:
    """Write an experiment's page, pictures and numbers; returns the page and its text."""
    if not any(evidence.runs.values()):
        raise UserError(
            f"no run of {evidence.experiment.name} is there yet: the same command without "
            "--render trains them"
        )
    one = evidence.experiment
    figures, rows = _DRAWERS[one.kind](evidence)
    tables = _TABLES.get(one.kind, _final_tables)(evidence)
    out.mkdir(parents=True, exist_ok=True)
    mark = f"-{evidence.scale.mark}" if evidence.scale.mark else ""
    pictures = []
    for name, figure in figures:
        picture = out / f"{one.name}{mark}-{name}.png"
        picture.write_bytes(plots.to_png(_marked(figure, evidence.scale)))
        pictures.append(picture.name)
    page = out / f"{one.name}{mark}.md"
    text = "\n".join(_page(evidence, tables, pictures))
    page.write_text(text)
    (out / f"{one.name}{mark}.csv").write_text(_csv(rows + _cell_rows(evidence)))
    replace_json(
        out / f"{one.name}{mark}.json",
        {"experiment": one.name, "scale": evidence.scale.scale, "caveats": evidence.caveats},
    )
    return page, text


# Pages --------------------------------------------------------------------------------------------


def _page(evidence: Evidence, tables: Sequence[str], pictures: Sequence[str]) -> list[str]:
    """The Markdown page."""
    one = evidence.experiment
    head = [f"# {one.name}: {one.about} ({one.where} of the paper)", ""]
    head += [f"> **{line}**" for line in evidence.caveats] + [""]
    head += ["Ours, mean ± standard deviation over seeds [the paper's in brackets].", ""]
    body = [line for table in tables for line in (table, "")]
    body += [f"![{name}]({name})" for name in pictures]
    notes = [f"- {note}" for note in one.notes]
    return head + body + (["", "Notes:", "", *notes] if notes else []) + [""]


def _final_tables(evidence: Evidence) -> list[str]:
    """One table per mode: tasks by settings, or settings by modes for a single task."""
    one = evidence.experiment
    if len(one.tasks) == 1:
        task = one.tasks[0]
        rows = [
            [setting.label, *(evidence.cell(task, setting, mode).text for mode in one.modes)]
            for setting in one.settings
        ]
        return [_markdown([task, *one.modes], rows)]
    tables = []
    for mode in one.modes:
        rows = [
            [task, *(evidence.cell(task, setting, mode).text for setting in one.settings)]
            for task in one.tasks
        ]
        tables.append(_markdown([mode, *(setting.label for setting in one.settings)], rows))
    return tables


def _intensity_tables(evidence: Evidence) -> list[str]:
    """Settings by intensity, the mean over tasks."""
    one = evidence.experiment
    rows = []
    for setting in one.settings:
        texts = []
        for mode in one.modes:
            cells = [evidence.cell(task, setting, mode) for task in one.tasks]
            known = [cell.paper.mean for cell in cells if cell.paper is not None]
            paper = f" [~{np.mean(known):.0f}]" if len(known) == len(cells) else ""
            ours = _mean_of([cell.mean for cell in cells])
            texts.append(("–" if math.isnan(ours) else f"{ours:.0f}") + paper)
        rows.append([setting.label, *texts])
    return [_markdown(["mean of tasks", *(mode.partition(":")[2] for mode in one.modes)], rows)]


def _markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _csv(rows: Sequence[Row]) -> str:
    """Rows with all their keys as columns."""
    buffer = io.StringIO()
    names = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.DictWriter(buffer, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()


def _cell_rows(evidence: Evidence) -> list[Row]:
    """The final figures as rows."""
    one = evidence.experiment
    cells = [evidence.cell(t, s, m) for t in one.tasks for s in one.settings for m in one.modes]
    return [
        {
            "what": f"final {one.unit}",
            "scale": evidence.scale.scale,
            "task": cell.task,
            "setting": cell.setting.label,
            "mode": cell.mode,
            "seeds": cell.seeds,
            "mean": cell.mean,
            "std": cell.std,
            "paper_mean": cell.paper.mean if cell.paper else "",
            "paper_std": cell.paper.std if cell.paper else "",
        }
        for cell in cells
        if cell.seeds or cell.paper
    ]


# Figures ------------------------------------------------------------------------------------------

Drawn = tuple[list[tuple[str, Figure]], list[Row]]


def _no_figures(evidence: Evidence) -> Drawn:
    """A table needs none."""
    return [], []


def _curves(evidence: Evidence) -> Drawn:
    """Return over training: a figure per task and mode, a line per setting."""
    return _curves_of(evidence, {"": evidence.experiment.settings}), []


def _curves_by_augmentation(evidence: Evidence) -> Drawn:
    """Return over training: a figure per task, mode and augmentation, with the plain reference."""
    settings = evidence.experiment.settings
    strong = dict.fromkeys(s.augment for s in settings if s.augment != "none")
    panels = {one: tuple(s for s in settings if s.augment in (one, "none")) for one in strong}
    return _curves_of(evidence, panels), []


def _curves_of(
    evidence: Evidence, panels: dict[str, tuple[Setting, ...]]
) -> list[tuple[str, Figure]]:
    """A figure per task, mode and panel; a panel is some settings under a name."""
    figures = []
    for task in evidence.experiment.tasks:
        for mode in dict.fromkeys(("train", *evidence.experiment.modes)):
            for name, settings in panels.items():
                curves = {
                    setting: [run.evaluation_curve(mode) for run in evidence.of(setting, [task])]
                    for setting in settings
                }
                if drawn := _series(curves):
                    repeat = _action_repeat(evidence, task)
                    title = f"{task} in {mode}" + (f": {name}" if name else "")
                    figure = plots.learning_curves(drawn, title=title, action_repeat=repeat)
                    words = [task, mode.replace(":", "-"), *([name] if name else [])]
                    figures.append(("-".join(words), figure))
    return figures


def _mean_curves(evidence: Evidence) -> Drawn:
    """Return over training, averaged over tasks, against decisions and against wall time."""
    settings = evidence.experiment.settings
    curves = {s: [run.evaluation_curve("train") for run in evidence.of(s)] for s in settings}
    hours = {s: [_over_hours(run) for run in evidence.of(s)] for s in settings}
    figures = []
    if drawn := _series(curves):
        title = "mean of tasks, training mode"
        figures.append(("decisions", plots.learning_curves(drawn, title=title, action_repeat=None)))
    if drawn := _series(hours):
        title = "mean of tasks, training mode: return against hours of wall time"
        figure = plots.learning_curves(drawn, title=title, action_repeat=None)
        figure.axes[0].set_xlabel("hours")
        figures.append(("hours", figure))
    rows = [
        {"what": "hours of a run", "setting": s.label, "mean": _mean_of(_hours(evidence.of(s)))}
        for s in settings
    ]
    return figures, rows


def _variances(evidence: Evidence) -> Drawn:
    """Variance of the Q-target over training, averaged over tasks."""
    settings = evidence.experiment.settings
    drawn = _series({s: [run.variance_curve() for run in evidence.of(s)] for s in settings})
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


def _gaps(evidence: Evidence) -> Drawn:
    """Q-value gap by augmentation, averaged over tasks and seeds."""
    setting = evidence.experiment.settings[0]
    gaps = _gaps_by_augmentation(evidence.of(setting))
    if not gaps:
        return [], []
    names = list(gaps)
    means = [float(np.mean(gaps[name])) for name in names]
    stds = [float(np.std(gaps[name])) for name in names]
    bar = plots.Bar(
        setting.label,
        means,
        [mean - std for mean, std in zip(means, stds, strict=True)],
        [mean + std for mean, std in zip(means, stds, strict=True)],
    )
    title = "mean |Q(s, a) − Q(aug(s), a)| of DrQ agents"
    figure = plots.grouped_bars([bar], names, title=title, height="gap")
    rows = [{"what": "q-gap", "mode": n, "mean": m} for n, m in zip(names, means, strict=True)]
    return [("gap", figure)], rows


def _gap_tables(evidence: Evidence) -> list[str]:
    """Gap by augmentation."""
    gaps = _gaps_by_augmentation(evidence.of(evidence.experiment.settings[0]))
    return [_markdown(["augmentation", "gap"], [[k, f"{np.mean(v):.3g}"] for k, v in gaps.items()])]


def _intensities(evidence: Evidence) -> Drawn:
    """Return against intensity, a figure per task."""
    return [(t, f) for t in evidence.experiment.tasks if (f := _intensity(evidence, [t], t))], []


def _mean_intensities(evidence: Evidence) -> Drawn:
    """Return against intensity, averaged over tasks."""
    tasks = list(evidence.experiment.tasks)
    figure = _intensity(evidence, tasks, "mean of tasks")
    return ([("intensity", figure)] if figure else []), []


def _intensity(evidence: Evidence, tasks: Sequence[str], title: str) -> Figure | None:
    """One figure over intensities; the paper's curves are read off a plot."""
    series = []
    for place, setting in enumerate(evidence.experiment.settings):
        modes = evidence.experiment.modes
        x = np.array([float(mode.partition(":")[2]) for mode in modes])
        cells = [[evidence.cell(task, setting, mode) for task in tasks] for mode in modes]
        ours = np.array([_mean_of([cell.mean for cell in row]) for row in cells])
        theirs = [[cell.paper.mean for cell in row if cell.paper] for row in cells]
        paper = None
        if all(len(row) == len(tasks) for row in theirs):
            paper = Curve(x, np.array([np.mean(row) for row in theirs]))
        known = np.isfinite(ours)
        if known.any():
            curve = Curve(x[known], ours[known])
            series.append(plots.Series(setting.label, curve, color=place % 8, paper=paper))
    return plots.intensity_curves(series, title=title) if series else None


def _series(curves: dict[Setting, list[Curve]]) -> list[plots.Series]:
    """Mean curves with a band of one standard deviation over runs."""
    drawn = []
    for place, (setting, members) in enumerate(curves.items()):
        grid, heights = results.common_curve(members)
        if not grid.size:
            continue
        mean = heights.mean(axis=0)
        spread = heights.std(axis=0, ddof=1) if len(heights) > 1 else np.full(grid.shape, np.nan)
        drawn.append(
            plots.Series(
                setting.label,
                Curve(grid, mean),
                band=(mean - spread, mean + spread),
                color=place % len(plots.PALETTE),
                dashed=place >= len(plots.PALETTE),
            )
        )
    return drawn


def _marked(figure: Figure, scale: Scale) -> Figure:
    """A figure that cannot be taken for the paper's size."""
    if scale.caveats:
        words = f"scaled to {scale.scale:g}" if scale.scale != 1 else "changed settings"
        note = f"{words}: no replication"
        figure.text(0.985, 0.975, note, ha="right", va="top", fontsize=9, color="#b00020")
    return figure


_DRAWERS: dict[str, Callable[[Evidence], Drawn]] = {
    "table": _no_figures,
    "curves": _curves,
    "curves-by-augmentation": _curves_by_augmentation,
    "mean-curves": _mean_curves,
    "q-variance": _variances,
    "q-gap": _gaps,
    "intensities": _intensities,
    "mean-intensities": _mean_intensities,
}
_TABLES: dict[str, Callable[[Evidence], list[str]]] = {
    "mean-intensities": _intensity_tables,
    "q-gap": _gap_tables,
}


# Numbers ------------------------------------------------------------------------------------------


def _read(folder: Path, cell: Sequence[PlannedRun], problems: list[str]) -> list[Run]:
    """The runs of a cell that have begun."""
    found = []
    for planned in cell:
        place = folder / "runs" / planned.name
        if not (place / layout.METRICS).exists():
            continue
        try:
            found.append(read_run(place))
        except UserError as error:
            problems.append(str(error))
    return found


def _returns(run: Run, mode: str) -> np.ndarray:
    """Returns of the final agent, if it is the final one."""
    return run.final_returns(mode) if run.finished else np.empty(0)


def _successes(run: Run, mode: str) -> np.ndarray:
    """Successes of the final agent."""
    return run.final_successes(mode) if run.finished else np.empty(0)


def _over_hours(run: Run) -> Curve:
    """The training curve against hours of wall time, at the run's mean speed."""
    curve = run.evaluation_curve("train")
    if not run.seconds or not run.decisions_done:
        return Curve(np.empty(0), np.empty(0))
    return Curve(curve.decisions * run.seconds / run.decisions_done / 3600, curve.returns)


def _hours(runs: Sequence[Run]) -> list[float]:
    """Wall time of finished runs."""
    return [run.seconds / 3600 for run in runs if run.finished and run.seconds]


def _gaps_by_augmentation(runs: Sequence[Run]) -> dict[str, list[float]]:
    """The gaps that `svea analyze q-gap` wrote, by augmentation."""
    found: dict[str, list[float]] = {}
    for run in runs:
        for row in run.analyses.get("q-gap", []):
            if isinstance(row.get("gap"), int | float):
                found.setdefault(str(row.get("augment")), []).append(float(row["gap"]))
    return found


def _action_repeat(evidence: Evidence, task: str) -> int | None:
    """Frames per decision, as the runs say."""
    runs = [run for s in evidence.experiment.settings for run in evidence.of(s, [task])]
    return runs[0].action_repeat if runs else None


def _mean_of(values: Sequence[float]) -> float:
    """The mean, nan as soon as one is missing: a mean of some tasks is not the mean of all."""
    return float(np.mean(values)) if len(values) else math.nan


def _spread(mean: float, std: float, digits: int) -> str:
    """Mean ± deviation, or the mean alone."""
    return f"{mean:.{digits}f}" + ("" if math.isnan(std) else f" ± {std:.{digits}f}")
