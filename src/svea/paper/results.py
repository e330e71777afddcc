"""What there is of an experiment: its runs, and their results."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from svea.core.errors import UserError
from svea.paper.experiments import Experiment, Scale, Setting
from svea.results import Group, Result, Unit, caveats_of, published, summarise_mode
from svea.results.read import read_run
from svea.results.run import Run
from svea.results.tables import Cell
from svea.results.tables.results import cell, papers
from svea.runs import layout
from svea.studies import PlannedRun, read_progress


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
    def group(self, task: str, setting: Setting) -> Group | None:
        """The finished runs of a cell: only their agents are final."""
        finished = [run for run in self.runs.get((task, setting), []) if run.finished]
        return Group(tuple(finished), setting.label) if finished else None

    @cache  # noqa: B019
    def result(
        self, task: str, setting: Setting, mode: str, unit: Unit | None = None
    ) -> Result | None:
        """The result of the final agents, in the experiment's unit unless one is given."""
        group = self.group(task, setting)
        return summarise_mode(group, mode, unit or self.experiment.unit) if group else None

    def mean(self, task: str, setting: Setting, mode: str) -> float:
        """The mean over seeds of the final agents; nan where there are none."""
        found = self.result(task, setting, mode)
        return found.mean if found else math.nan

    def papers(self, task: str, setting: Setting, mode: str) -> published.PaperResult | None:
        """The paper's number, also where we have no run."""
        if setting.views > 1:
            return None
        who = (setting.method, setting.augment, setting.encoder)
        found = published.lookup(task, mode, *who)
        return found if found and found.unit == self.experiment.unit else None

    def cell(self, task: str, setting: Setting, mode: str) -> Cell:
        """Ours next to the paper's."""
        found = self.result(task, setting, mode)
        return cell(found) if found else Cell("–", paper=papers(self.papers(task, setting, mode)))

    def all_results(self, unit: Unit | None = None) -> list[Result]:
        """Every result there is, by task, setting and mode."""
        one = self.experiment
        found = (
            self.result(task, setting, mode, unit)
            for task in one.tasks
            for setting in one.settings
            for mode in one.modes
        )
        return [result for result in found if result is not None]

    def of(self, setting: Setting, tasks: Iterable[str] | None = None) -> list[Run]:
        """The runs of a setting, on some tasks or all."""
        wanted = self.experiment.tasks if tasks is None else tuple(tasks)
        return [run for task in wanted for run in self.runs.get((task, setting), [])]

    @property
    def caveats(self) -> list[str]:
        """What a reader must know, the most serious first."""
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
            for line in caveats_of(Group(tuple(runs), ""))
            if not line.startswith(("few seeds", "seed ")) and self._concerns(line)
        }
        return found + sorted(told)

    def _concerns(self, caveat: str) -> bool:
        """Whether a caveat about pictures is about a mode that is shown here."""
        modes, colon, rest = caveat.rpartition(": procedural")
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
    for planned in cell:
        run = folder / "runs" / planned.name
        if not (run / layout.METRICS).exists():
            continue
        try:
            found.append(read_run(run))
        except UserError as error:
            problems.append(str(error))
    return found
