"""The page of an experiment: its tables and figures from run folders, with the paper's numbers.

Every page is Markdown with its PNG files and a CSV of the numbers behind them, and says what keeps
it from being a replication: another edition, changed options, missing runs, few seeds. Figures and
tables are those of a report. A run is shown only where it was planned: by its name and its options.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from svea.config import to_dict
from svea.config.presets import differences
from svea.core import files
from svea.core.errors import UserError
from svea.core.words import listed, mean_std, number, significant
from svea.paper.experiments import Edition, Experiment, Setting
from svea.results import figures, plots, published, stats, summary
from svea.results.groups import Group, caveats_of
from svea.results.published import PaperResult
from svea.results.read import Run, read_run
from svea.results.summary import Result, Unit, summarise_mode
from svea.results.tables import (
    ABOUT,
    SPREAD,
    Cell,
    Record,
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
from svea.runs.load import ABOUT as ABOUT_RUN
from svea.studies import PlannedRun

MEAN = "mean of tasks"
TABLE_1 = ("color_hard", "video_easy")
MEASURES: dict[str, tuple[str, Callable[[Run, str], float]]] = {
    "return": ("return", lambda run, mode: mean_of(run.finals(mode))),
    "success": ("success", lambda run, mode: mean_of(run.finals(mode, "success"))),
    "benchmark": (
        "mean of Table 1's modes",
        lambda run, _: float(np.mean([mean_of(run.finals(mode)) for mode in TABLE_1])),
    ),
    "area": ("area under the training curve", lambda r, mode: mean_of(summary.areas([r], mode))),
    "variance": (
        "variance of the Q-target",
        lambda run, _: mean_of(run.evaluation_curve(None, "q_target_variance").returns),
    ),
    "seconds": ("seconds a decision", lambda run, _: summary.seconds_per_decision([run])),
}
"""What can be measured of a finished run, perhaps in a mode: its name, and the number or nan."""
MEASURED = {
    "q-variance": ["variance"],
    "mean-curves": ["area", "seconds"],
    "curves-by-augmentation": ["area"],
}
"""What the tables of some kinds of experiments show beside returns."""


def mean_of(values: ArrayLike) -> float:
    """The mean; nan of nothing."""
    return stats.mean_and_std(values)[0]


@dataclass(eq=False)
class ExperimentResults:
    """The runs of an experiment that exist, finished or not."""

    experiment: Experiment
    edition: Edition
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

    def scores(self, task: str, setting: Setting, measure: str, mode: str = "train") -> list[float]:
        """A number of each finished run of a cell that has it."""
        group, (_, of) = self._group(task, setting), MEASURES[measure]
        values = [of(run, mode) for run in group.runs] if group else []
        return [value for value in values if math.isfinite(value)]

    def papers(self, task: str, setting: Setting, mode: str) -> PaperResult | None:
        """The paper's number, also where we have no run."""
        if setting.set.keys() - {"encoder"}:
            return None
        who = (setting.method, setting.augment, setting.set.get("encoder", "cnn"))
        found = published.lookup(task, mode, *who)
        return found if found and found.unit == self.experiment.unit else None

    def all_results(self, unit: Unit | None = None) -> list[Result]:
        """Every result there is, by task, setting and mode."""
        one = self.experiment
        cells = itertools.product(one.tasks, one.settings, one.modes)
        return [found for cell in cells if (found := self.result(*cell, unit)) is not None]

    def of(self, setting: Setting, tasks: Sequence[str] = ()) -> list[Run]:
        """The runs of a setting, on some tasks or all."""
        wanted = tasks or self.experiment.tasks
        return [run for task in wanted for run in self.runs.get((task, setting), [])]

    def groups(self, tasks: Sequence[str] = (), settings: Sequence[Setting] = ()) -> list[Group]:
        """The runs of each setting that has any, over tasks: what curves are drawn of."""
        found = {one: self.of(one, tasks) for one in settings or self.experiment.settings}
        return [Group(tuple(runs), setting.label) for setting, runs in found.items() if runs]

    @property
    def caveats(self) -> list[str]:
        """What a reader must know, the most serious first."""
        found = self.edition.caveats + list(self.problems)
        if self.finished < self.planned:
            found.append(f"INCOMPLETE: {self.finished} of {self.planned} runs are finished")
        present = [len(runs) for runs in self.runs.values() if runs]
        if present and min(present) < published.SEEDS:
            found.append(f"few seeds: {min(present)} where the paper has {published.SEEDS}")
        groups = [Group(tuple(runs), "") for runs in self.runs.values() if runs]
        lines = {line for group in groups for line in caveats_of(group)}
        shown = {"train", *self.experiment.modes}
        for line in sorted(lines):
            # One about pictures begins with its modes.
            modes, of_pictures, rest = line.rpartition(": generated data")
            is_elsewhere = of_pictures and rest and shown.isdisjoint(modes.split(", "))
            if not is_elsewhere and not line.startswith("few seeds"):
                found.append(line)
        return found


def gather(experiment: Experiment, edition: Edition, runs: Path) -> ExperimentResults:
    """Read what there is of an experiment's runs in a folder of run folders."""
    cells = experiment.runs(edition)
    problems: list[str] = []
    found = {key: _read(runs, cell, problems) for key, cell in cells.items()}
    finished = sum(_is_complete(run, experiment) for cell in found.values() for run in cell)
    planned = sum(map(len, cells.values()))
    return ExperimentResults(experiment, edition, found, planned, finished, problems)


def _is_complete(run: Run, experiment: Experiment) -> bool:
    """Whether a run has reached its end, and has played and analysed what the experiment shows."""
    there = {*run.analyses, *(record["mode"] for record in run.agent_episodes)}
    return run.finished and there >= {*experiment.modes, *experiment.analyses}


def _read(runs: Path, cell: Sequence[PlannedRun], problems: list[str]) -> list[Run]:
    """The runs of a cell that have begun; of another edition's and damaged ones, the problem."""
    found = []
    for planned in cell:
        folder = runs / planned.name
        try:
            if (folder / layout.METRICS).exists():
                require_planned(folder, planned)
                found.append(read_run(folder))
        except UserError as error:
            problems.append(str(error))
    return found


def require_planned(folder: Path, planned: PlannedRun) -> None:
    """Refuse a run folder with other options than those of the run that has its name."""
    try:
        there = files.read_json(folder / layout.CONFIG, layout.CONFIG_BYTES)
        known = {name: value for name, value in there.items() if name not in ABOUT_RUN}
        longer = known["decisions"] > planned.decisions
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(f"{folder / layout.CONFIG} cannot be read: {error}") from error
    found = differences(known, to_dict(planned.config))
    if longer:
        found.append(f"decisions: {known['decisions']:,} there, {planned.decisions:,} here")
    if found:
        raise UserError(
            f"{folder} is a run of another edition, and is never shown with this one: "
            f"{listed(found, most=3, between='; ')}"
        )


def render(found: ExperimentResults, out: Path) -> tuple[Path, str]:
    """Write an experiment's page, pictures and numbers; returns the page and its text."""
    name = "-".join(filter(None, [found.experiment.name, found.edition.suffix]))
    drawn = list(DRAWN[found.experiment.kind](found))
    for _, figure, _ in drawn if found.edition.mark else ():  # not to be taken for the paper's size
        note = f"{found.edition.mark}: not a replication"
        figure.suptitle(note, x=0.985, ha="right", fontsize=9, color="#b00020")
    pictures = {f"{name}-{what}.png": plots.to_png(figure) for what, figure, _ in drawn}
    rows = [row for _, _, numbers in drawn for row in numbers]
    text = "\n".join(_page(found, list(tables(found)), list(pictures)))
    edition: Record = {"edition": found.edition.name, "scale": found.edition.scale}
    about = {"experiment": found.experiment.name, **edition, "caveats": found.caveats}
    contents: dict[str, bytes] = pictures | {
        f"{name}.md": text.encode(),
        f"{name}.csv": records_to_csv([*rows, *_records(found, edition)]).encode(),
        f"{name}.json": files.to_json(about),
    }
    for file, content in contents.items():
        files.write_whole(out / file, content)
    return out / f"{name}.md", text


def _page(found: ExperimentResults, shown: Sequence[Table], pictures: Sequence[str]) -> list[str]:
    """The lines of the Markdown page."""
    one, results = found.experiment, found.all_results()
    name = ", ".join(filter(None, [one.name, found.edition.mark]))
    lines = [f"# {name}: {one.about} (paper: {one.where})", ""]
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


def tables(found: ExperimentResults) -> Iterator[Table]:
    """One table per mode: tasks by settings, or settings by modes for a single task."""
    one, settings = found.experiment, found.experiment.settings
    names = [setting.label for setting in settings]
    if one.kind == "q-gap":
        if gaps := figures.analysed(found.of(settings[0]), "q-gap", "augment", "gap"):
            yield Table.of("", [{"augmentation": k, "gap": _measured(v)} for k, v in gaps.items()])
    elif one.kind == "mean-intensities":
        heads = {mode: mode.partition(":")[2] for mode in one.modes}
        cells = [{heads[m]: _mean_cell(found, s, m) for m in one.modes} for s in settings]
        yield _table(MEAN, names, cells)
    elif len(one.tasks) == 1:
        (task,) = one.tasks
        cells = [{mode: _cell(found, task, s, mode) for mode in one.modes} for s in settings]
        yield _table(task, names, cells)
    else:
        for mode in one.modes:
            cells = [{s.label: _cell(found, t, s, mode) for s in settings} for t in one.tasks]
            yield _table(mode, one.tasks, cells)
    for measure in MEASURED.get(one.kind, ()):
        scores = [{t: _measured(found.scores(t, s, measure)) for t in one.tasks} for s in settings]
        yield _table(MEASURES[measure][0], names, scores)


def _table(corner: str, names: Iterable[str], cells: Iterable[Mapping[str, Cell | str]]) -> Table:
    """A table with what its rows are in the corner."""
    return Table.of("", [{corner: name, **row} for name, row in zip(names, cells, strict=True)])


def _measured(scores: Sequence[float]) -> str:
    """A number of each finished run, over seeds; the paper has only curves of it."""
    return mean_std(*stats.mean_and_std(scores), significant)


def _cell(found: ExperimentResults, task: str, setting: Setting, mode: str) -> Cell:
    """Ours next to the paper's."""
    result = found.result(task, setting, mode)
    return cell(result) if result else Cell("–", paper=papers(found.papers(task, setting, mode)))


def _mean_cell(found: ExperimentResults, setting: Setting, mode: str) -> Cell:
    """The mean of all tasks; none as soon as one is missing."""
    tasks = found.experiment.tasks
    ours = float(np.mean([found.mean(task, setting, mode) for task in tasks]))
    paper = _papers_mean(found, setting, mode, tasks)
    return Cell(number(ours), paper=ABOUT + number(paper.mean) if paper else "")


def _papers_mean(
    found: ExperimentResults, setting: Setting, mode: str, tasks: Sequence[str]
) -> PaperResult | None:
    """The paper's mean over tasks; None where it lacks one."""
    known = [found.papers(task, setting, mode) for task in tasks]
    numbers = [one for one in known if one is not None]
    if len(numbers) < len(tasks):
        return None
    return replace(numbers[0], mean=float(np.mean([one.mean for one in numbers])), std=math.nan)


def _records(found: ExperimentResults, edition: Record) -> Iterator[Record]:
    """Every result unrounded, and the paper's numbers for which there is none yet."""
    one = found.experiment
    about = {"what": f"final {one.unit}"} | edition
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
    strata = [one.group.by_world(mode) for one in present]
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
