"""The page of an experiment: its tables and figures from run folders, with the paper's numbers.

Every page is Markdown with its PNG files and a CSV of the numbers behind them, and says what keeps
it from being a replication: a smaller scale, changed options, missing runs, few seeds. Figures and
tables are those of a report.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from svea.core import files
from svea.core.errors import UserError
from svea.core.words import mean_std, number, significant
from svea.paper.experiments import Experiment, Scale, Setting
from svea.results import figures, plots, published, stats
from svea.results.groups import Group, caveats_of
from svea.results.published import PaperResult
from svea.results.read import Run, read_run
from svea.results.summary import Result, Unit, summarise_mode
from svea.results.tables import (
    ABOUT,
    SPREAD,
    Cell,
    Column,
    Record,
    Row,
    Table,
    cell,
    list_results,
    notes_on_marks,
    papers,
    record,
    records_to_csv,
    to_markdown,
)
from svea.runs import layout
from svea.studies import PlannedRun, read_progress

MEAN = "mean of tasks"


@dataclass(eq=False)
class ExperimentResults:
    """The runs of an experiment that exist, finished or not."""

    experiment: Experiment
    scale: Scale
    runs: dict[tuple[str, Setting], list[Run]]
    planned: int
    finished: int
    problems: list[str] = field(default_factory=list)

    @cache  # noqa: B019  (as short-lived as the command that draws the page)
    def result(
        self, task: str, setting: Setting, mode: str, unit: Unit | None = None
    ) -> Result | None:
        """The result of the finished runs' agents, in the experiment's unit unless one is given."""
        group = self._group(task, setting)
        return summarise_mode(group, mode, unit or self.experiment.unit) if group else None

    @cache  # noqa: B019
    def _group(self, task: str, setting: Setting) -> Group | None:
        """The finished runs of a cell: only their agents are final."""
        finished = tuple(run for run in self.runs.get((task, setting), []) if run.finished)
        return Group(finished, setting.label) if finished else None

    def mean(self, task: str, setting: Setting, mode: str) -> float:
        """The mean over seeds of the final agents; nan where there are none."""
        found = self.result(task, setting, mode)
        return found.mean if found else math.nan

    def papers(self, task: str, setting: Setting, mode: str) -> PaperResult | None:
        """The paper's number, also where we have no run."""
        if setting.views > 1:
            return None
        who = (setting.method, setting.augment, setting.encoder)
        found = published.lookup(task, mode, *who)
        return found if found and found.unit == self.experiment.unit else None

    def all_results(self, unit: Unit | None = None) -> list[Result]:
        """Every result there is, by task, setting and mode."""
        one = self.experiment
        cells = itertools.product(one.tasks, one.settings, one.modes)
        return [found for cell in cells if (found := self.result(*cell, unit)) is not None]

    def of(self, setting: Setting, tasks: Iterable[str] | None = None) -> list[Run]:
        """The runs of a setting, on some tasks or all."""
        wanted = self.experiment.tasks if tasks is None else tasks
        return [run for task in wanted for run in self.runs.get((task, setting), [])]

    def groups(
        self, tasks: Iterable[str] | None = None, settings: Sequence[Setting] = ()
    ) -> list[Group]:
        """The runs of each setting that has any, over tasks: what curves are drawn of."""
        wanted = settings or self.experiment.settings
        found = {setting: self.of(setting, tasks) for setting in wanted}
        return [Group(tuple(runs), setting.label) for setting, runs in found.items() if runs]

    @property
    def caveats(self) -> list[str]:
        """What a reader must know, the most serious first."""
        found = self.scale.caveats + list(self.problems)
        if self.finished < self.planned:
            found.append(f"INCOMPLETE: {self.finished} of {self.planned} runs are finished")
        present = [len(runs) for runs in self.runs.values() if runs]
        if present and min(present) < published.SEEDS:
            found.append(f"few seeds: {min(present)} where the paper has {published.SEEDS}")
        groups = [Group(tuple(runs), "") for runs in self.runs.values() if runs]
        lines = {line for group in groups for line in caveats_of(group)}
        return found + sorted(
            line for line in lines if not line.startswith("few seeds") and self._concerns(line)
        )

    def _concerns(self, caveat: str) -> bool:
        """Whether a caveat about pictures is about a mode that is shown here."""
        modes, colon, rest = caveat.rpartition(": generated data")
        shown = {"train", *self.experiment.modes}
        return not colon or not rest or any(mode in shown for mode in modes.split(", "))


def gather(experiment: Experiment, scale: Scale, folder: Path) -> ExperimentResults:
    """Read what there is of an experiment's runs."""
    cells = experiment.runs(scale)
    planned = [run for cell in cells.values() for run in cell]
    problems: list[str] = []
    runs = {key: _read(folder, cell, problems) for key, cell in cells.items()}
    finished = sum(read_progress(folder, run).done for run in planned)
    return ExperimentResults(experiment, scale, runs, len(planned), finished, problems)


def _read(folder: Path, cell: Sequence[PlannedRun], problems: list[str]) -> list[Run]:
    """The runs of a cell that have begun."""
    found = []
    for run in (folder / "runs" / planned.name for planned in cell):
        if (run / layout.METRICS).exists():
            try:
                found.append(read_run(run))
            except UserError as error:
                problems.append(str(error))
    return found


def render(found: ExperimentResults, out: Path) -> tuple[Path, str]:
    """Write an experiment's page, pictures and numbers; returns the page and its text."""
    if not any(found.runs.values()):
        raise UserError(
            f"no run of {found.experiment.name} is there yet: the same command without "
            "--render trains them"
        )
    name = "-".join(filter(None, [found.experiment.name, found.scale.suffix]))
    drawn = draw(found)
    pictures = {f"{name}-{what}.png": plots.to_png(figure) for what, figure, _ in drawn}
    rows = [row for _, _, numbers in drawn for row in numbers]
    text = "\n".join(_page(found, list(_tables(found)), list(pictures)))
    about = {"experiment": found.experiment.name, "scale": found.scale.scale}
    contents: dict[str, bytes] = pictures | {
        f"{name}.md": text.encode(),
        f"{name}.csv": records_to_csv([*rows, *_records(found)]).encode(),
        f"{name}.json": files.to_json(about | {"caveats": found.caveats}),
    }
    for file, content in contents.items():
        files.write_whole(out / file, content)
    return out / f"{name}.md", text


def _page(found: ExperimentResults, shown: Sequence[Table], pictures: Sequence[str]) -> list[str]:
    """The lines of the Markdown page."""
    one, results = found.experiment, found.all_results()
    lines = [f"# {one.name}: {one.about} ({one.where} of the paper)", ""]
    lines += [f"> **{line}**" for line in found.caveats] + [""]
    marks = notes_on_marks(results, brief=True)
    lines += [" ".join([SPREAD, "In parentheses: the paper.", *marks]), ""]
    lines += [to_markdown(table) for table in shown]
    lines += [f"![{name}]({name})" for name in pictures]
    if one.notes:
        lines += ["", "Notes:", "", *(f"- {note}" for note in one.notes)]
    if results:  # in the same form as `svea eval` and `svea report` print them
        every = list_results(found.all_results("return"), found.all_results("success"))
        lines += ["", to_markdown(every).rstrip()]
    return [*lines, ""]


# Tables -------------------------------------------------------------------------------------------


def _tables(found: ExperimentResults) -> Iterator[Table]:
    """One table per mode: tasks by settings, or settings by modes for a single task."""
    one = found.experiment
    if one.kind == "q-gap":
        gaps = figures.analysed(found.of(one.settings[0]), "q-gap", "augment", "gap")
        shown = {k: mean_std(*stats.mean_and_std(v), significant) for k, v in gaps.items()}
        yield _table("augmentation", ["gap"], {name: [Cell(text)] for name, text in shown.items()})
    elif one.kind == "mean-intensities":
        heads = [mode.partition(":")[2] for mode in one.modes]
        rows = {s.label: [_mean_cell(found, s, mode) for mode in one.modes] for s in one.settings}
        yield _table(MEAN, heads, rows)
    elif len(one.tasks) == 1:
        (task,) = one.tasks
        rows = {s.label: [_cell(found, task, s, mode) for mode in one.modes] for s in one.settings}
        yield _table(task, one.modes, rows)
    else:
        heads = [setting.label for setting in one.settings]
        for mode in one.modes:
            rows = {t: [_cell(found, t, s, mode) for s in one.settings] for t in one.tasks}
            yield _table(mode, heads, rows)


def _table(corner: str, heads: Sequence[str], rows: dict[str, list[Cell]]) -> Table:
    """A table with what its rows are in the corner."""
    columns = (Column(corner, kind="text"), *(Column(head) for head in heads))
    titles = [column.title for column in columns]
    lines = [dict(zip(titles, (Cell(k), *cells), strict=True)) for k, cells in rows.items()]
    return Table(corner, "", columns, tuple(map(Row, lines)))


def _cell(found: ExperimentResults, task: str, setting: Setting, mode: str) -> Cell:
    """Ours next to the paper's."""
    result = found.result(task, setting, mode)
    return cell(result) if result else Cell("–", paper=papers(found.papers(task, setting, mode)))


def _mean_cell(found: ExperimentResults, setting: Setting, mode: str) -> Cell:
    """The mean of all tasks; none as soon as one is missing."""
    tasks = found.experiment.tasks
    ours = float(np.mean([found.mean(task, setting, mode) for task in tasks]))
    paper = _papers_mean(found, setting, mode, tasks)
    return Cell(number(ours), paper=ABOUT + number(paper.mean) if paper else "", value=ours)


def _papers_mean(
    found: ExperimentResults, setting: Setting, mode: str, tasks: Sequence[str]
) -> PaperResult | None:
    """The paper's mean over tasks; None where it lacks one."""
    known = [found.papers(task, setting, mode) for task in tasks]
    numbers = [one for one in known if one is not None]
    if len(numbers) < len(tasks):
        return None
    return replace(numbers[0], mean=float(np.mean([one.mean for one in numbers])), std=math.nan)


def _records(found: ExperimentResults) -> Iterator[Record]:
    """Every result unrounded, and the paper's numbers for which there is none yet."""
    one = found.experiment
    about = {"what": f"final {one.unit}", "scale": found.scale.scale}
    for task, setting, mode in itertools.product(one.tasks, one.settings, one.modes):
        result, paper = found.result(task, setting, mode), found.papers(task, setting, mode)
        if result is not None:
            yield about | record(result)
        elif paper is not None:
            where = {"task": task, "setting": setting.label, "mode": mode, "seeds": 0}
            yield about | where | {"paper_mean": paper.mean, "paper_std": paper.std}


# Figures ------------------------------------------------------------------------------------------


Drawing = tuple[str, Figure, list[Record]]
"""A figure, its name, and the numbers that it alone shows."""


def draw(found: ExperimentResults) -> list[Drawing]:
    """The figures of an experiment."""
    drawn = list(DRAWN[found.experiment.kind](found))
    if found.scale.caveats:  # a figure that cannot be taken for the paper's size
        scale = found.scale.scale
        note = f"{'changed settings' if scale == 1 else f'scaled to {scale:g}'}: not a replication"
        for _, figure, _ in drawn:
            figure.suptitle(note, x=0.985, ha="right", fontsize=9, color="#b00020")
    return drawn


def _curves(found: ExperimentResults) -> Iterator[Drawing]:
    """Return over training: a figure per task and mode, or for each augmentation of several."""
    one = found.experiment
    panels = {"": one.settings}
    if one.kind == "curves-by-augmentation":  # each next to the plain reference
        strong = dict.fromkeys(s.augment for s in one.settings if s.augment != "none")
        panels = {a: tuple(s for s in one.settings if s.augment in (a, "none")) for a in strong}
    modes = list(dict.fromkeys(("train", *one.modes)))
    for task in one.tasks:
        for name, settings in panels.items():
            groups = found.groups([task], settings)
            for made in figures.learning(task, groups, figures.looks_of(groups), modes):
                words = [made.name.removeprefix("learning-").replace(":", "-"), name]
                yield "-".join(filter(None, words)), made.figure, []


def _mean_curves(found: ExperimentResults) -> Iterator[Drawing]:
    """Return over decisions and over hours, averaged over tasks, and the hours of a run."""
    groups = found.groups()
    looks = figures.looks_of(groups)
    for made in figures.learning(MEAN, groups, looks, ["train"]):
        yield "decisions", made.figure, [_hours(group) for group in groups]
    if hours := figures.wall_time(MEAN, groups, "train", looks):
        yield "hours", hours, []


def _hours(group: Group) -> Record:
    """The wall time of a setting's finished runs."""
    hours = [run.seconds / 3600 for run in group.runs if run.finished and run.seconds]
    mean = float(np.mean(hours)) if hours else math.nan
    return {"what": "hours of a run", "setting": group.label, "mean": mean}


def _q_variance(found: ExperimentResults) -> Iterator[Drawing]:
    """Variance of the Q-target over training, averaged over tasks."""
    groups = found.groups()
    for made in figures.variance_curves(MEAN, groups, figures.looks_of(groups)):
        yield "variance", made.figure, [
            {"what": "q-target variance", "setting": row["setting"],
             "mode": f"decision {row['decision']:.0f}", "mean": row["mean"]}
            for row in made.numbers
        ]  # fmt: skip


def _q_gap(found: ExperimentResults) -> Iterator[Drawing]:
    """Q-value gaps by augmentation, averaged over tasks."""
    groups = found.groups()
    for made in figures.q_bars(MEAN, groups, figures.looks_of(groups)):
        if "q-gap" in made.name:
            yield "gap", made.figure, [
                {"what": "q-gap", "mode": row["category"], "mean": row["value"]}
                for row in made.numbers
            ]  # fmt: skip


def _intensities(found: ExperimentResults) -> Iterator[Drawing]:
    """Return against intensity, task by task or averaged over them."""
    one = found.experiment
    pooled = one.kind == "mean-intensities"
    for tasks in [one.tasks] if pooled else [(task,) for task in one.tasks]:
        results = [
            result
            for setting in one.settings
            for mode in one.modes
            if (result := _mean_result(found, setting, mode, tasks)) is not None
        ]
        groups = list(dict.fromkeys(result.group for result in results))
        name = MEAN if pooled else tasks[0]
        for made in figures.distracting(name, groups, results, figures.looks_of(groups)):
            yield "intensity" if pooled else name, made.figure, []


def _mean_result(
    found: ExperimentResults, setting: Setting, mode: str, tasks: Sequence[str]
) -> Result | None:
    """The mean over tasks, each of them a stratum of its interval; None where one is missing."""
    each = [found.result(task, setting, mode) for task in tasks]
    present = [one for one in each if one is not None]
    if len(present) < len(tasks):
        return None
    strata = [
        stats.SeedsAndWorlds.of([run.final_by_world(mode) for run in one.group.runs])
        for one in present
    ]
    mean = stats.mean_of_strata([len(one.scores) for one in strata])
    ends = stats.bootstrap_interval(strata, mean)
    paper = _papers_mean(found, setting, mode, tasks)
    return replace(present[0], mean=ends.point, interval=ends, paper=paper)


DRAWN: dict[str, Callable[[ExperimentResults], Iterable[Drawing]]] = {
    "table": lambda found: (),
    "curves": _curves,
    "curves-by-augmentation": _curves,
    "mean-curves": _mean_curves,
    "intensities": _intensities,
    "mean-intensities": _intensities,
    "q-variance": _q_variance,
    "q-gap": _q_gap,
}
"""How each kind of experiment is drawn."""
