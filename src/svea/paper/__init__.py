"""The paper's tables, figures and claims, as studies: `Paper` is the only door to this folder."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from svea.core.errors import UserError
from svea.paper.claims import Verdict, verdicts
from svea.paper.experiments import PAPER, SEEDS, Edition
from svea.paper.pages import gather, render, require_planned
from svea.runs import layout
from svea.studies import PlannedRun, Study, open_study, parse_seeds, read_progress, read_study
from svea.studies.folder import run_folder

__all__ = ["Paper"]
ALL = "all"
"""Every experiment of an edition, where one can be named."""


class Paper:
    """The experiments of the paper in some edition, in one folder that they share."""

    def __init__(
        self,
        scale: float = 1.0,
        seeds: str = SEEDS,
        changes: dict[str, Any] | None = None,
        edition: str = PAPER,
    ) -> None:
        """Choose an edition, or a share of the paper's decisions, and options that differ."""
        self.edition = Edition(scale, seeds, changes or {}, edition)
        self.folder = Path("runs") / self.edition.title.replace(" ", "-")

    def experiments(self) -> list[dict[str, Any]]:
        """What there is to run: name, place in the paper, number of runs."""
        return [
            {
                "name": one.name,
                "paper": one.where,
                "runs": len(one.tasks) * len(one.settings) * len(parse_seeds(self.edition.seeds)),
                "about": one.about,
            }
            for one in self.edition.experiments.values()
        ]

    def notes(self, what: str = "") -> list[str]:
        """What a reader must know about this edition, and about an experiment."""
        own = self.edition.experiment(what).notes if what not in ("", ALL) else ()
        return [*self.edition.caveats, *own]

    def runs(self, what: str) -> tuple[PlannedRun, ...]:
        """The runs behind an experiment or all; one that several need has the modes of them all."""
        found: dict[str, PlannedRun] = {}
        for name in self._names(what):
            for cell in self.edition.experiment(name).runs(self.edition).values():
                for run in cell:
                    known = found.get(run.name, run)
                    found[run.name] = replace(
                        known,
                        modes=tuple(dict.fromkeys((*known.modes, *run.modes))),
                        analyses=tuple(dict.fromkeys((*known.analyses, *run.analyses))),
                    )
        return tuple(found.values())

    def study(self, what: str, attempts: int = 3) -> Study:
        """The runs of an experiment or of all, also those that other commands trained there."""
        runs = self.runs(what)
        self._require_own(runs)
        begun = any(run_folder(self.folder, run).is_dir() for run in runs)
        if begun and not (self.folder / "study.json").exists():
            return Study(self.folder.absolute(), runs, self.edition.title, attempts)
        return open_study(self.folder, runs, self.edition.title, attempts)

    def forecast(self, study: Study) -> list[str]:
        """Hours on this machine of what is left of a study, in words; only of runs for a laptop."""
        left = [run for run in study.runs if not read_progress(study.folder, run).done]
        if not self.edition.sizes or not left:
            return []
        from svea.paper.forecast import forecast

        return forecast(left)

    def render(self, what: str) -> list[tuple[Path, str]]:
        """Draw what there is of a table or figure, or of all; returns each page and its text."""
        self._require_own()
        found = [
            gather(self.edition.experiment(name), self.edition, self.folder / "runs")
            for name in self._names(what)
        ]
        shown = [one for one in found if any(one.runs.values())]
        if not shown:
            raise UserError(f"no run of {what} is there yet; leave --render out to train them")
        return [render(one, self.folder / "paper") for one in shown]

    def claims(self) -> list[Verdict]:
        """The paper's claims, each with its rule and our number."""
        self._require_own()
        return verdicts(self.edition, self.folder / "runs")

    def _names(self, what: str) -> Iterable[str]:
        """The experiments that are named."""
        return self.edition.experiments if what == ALL else [what]

    def _require_own(self, runs: Iterable[PlannedRun] = ()) -> None:
        """Refuse a folder of another edition, before anything is run or shown."""
        there = (self.folder / "study.json").exists() and read_study(self.folder).title
        if there and there != self.edition.title:
            raise UserError(
                f"{self.folder} holds the study {there!r}, not {self.edition.title!r}; name "
                "another --out"
            )
        for run in runs:
            if ((folder := run_folder(self.folder, run)) / layout.CONFIG).exists():
                require_planned(folder, run)
