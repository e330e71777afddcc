"""The paper's tables, figures and claims, as studies: `Paper` is the only door to this folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from svea.paper.claims import Verdict, verdicts
from svea.paper.experiments import EXPERIMENTS, SEEDS, Scale, experiment
from svea.paper.pages import gather, render
from svea.studies import Study, open_study, parse_seeds

__all__ = ["Paper"]


class Paper:
    """The experiments of the paper at some size, in one folder that they share."""

    def __init__(
        self, scale: float = 1.0, seeds: str = SEEDS, changes: dict[str, Any] | None = None
    ) -> None:
        """Choose the share of the paper's decisions, and options that differ from the paper's."""
        self.scale = Scale(scale, seeds, changes or {})
        self.folder = Path("runs") / "-".join(filter(None, ["paper", self.scale.suffix]))

    @staticmethod
    def experiments() -> list[dict[str, Any]]:
        """What there is to run: name, place in the paper, number of runs."""
        return [
            {
                "name": one.name,
                "paper": one.where,
                "runs": len(one.tasks) * len(one.settings) * len(parse_seeds(SEEDS)),
                "about": one.about,
            }
            for one in EXPERIMENTS.values()
        ]

    def notes(self, name: str = "") -> list[str]:
        """What a reader must know about this size, and about an experiment."""
        return [*self.scale.caveats, *(experiment(name).notes if name else ())]

    def study(self, name: str, attempts: int = 3) -> Study:
        """The runs behind a table or figure, in the folder that all experiments share."""
        runs = [run for cell in experiment(name).runs(self.scale).values() for run in cell]
        title = " ".join(filter(None, ["paper", self.scale.suffix]))
        return open_study(self.folder, runs, title, attempts)

    def render(self, name: str) -> tuple[Path, str]:
        """Draw what there is of a table or figure; returns its page and the text."""
        return render(gather(experiment(name), self.scale, self.folder), self.folder / "paper")

    def claims(self) -> list[Verdict]:
        """The paper's claims, each with its rule and our number."""
        return verdicts(self.scale, self.folder)
