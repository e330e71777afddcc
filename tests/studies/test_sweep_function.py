"""`svea.sweep`: what it returns, and refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fake_studies import write_finished

import svea
from svea.core.errors import UserError
from svea.studies import Grid, PlannedRun, Study
from svea.studies import engines as local
from svea.studies.engines import Resources


def test_a_study_in_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []

    def run_study(study: Study, runs: list[PlannedRun], resources: Resources, refresh: Any) -> None:
        given.append((len(runs), resources.jobs))
        write_finished(study.folder, runs[0])
        refresh()

    monkeypatch.setattr(local, "run_study", run_study)
    grid, refreshed = Grid(["walker_walk"], seeds="0-1"), []

    def sweep(**options: Any) -> list[str]:
        states = svea.sweep(grid, tmp_path / "study", decisions=100, **options)
        assert states[0].folder == tmp_path / "study/runs/walker_walk-svea-conv-s0"
        return [state.state for state in states]

    options = {"resources": Resources(jobs=3), "refresh": lambda: refreshed.append(1)}
    assert sweep(**options) == ["done", "queued"] and refreshed
    assert given == [(2, 3)]
    with pytest.raises(UserError, match="'locl'"):
        sweep(on="locl")
    with pytest.raises(UserError, match="another study"):
        svea.sweep([grid], tmp_path / "study", decisions=99)
