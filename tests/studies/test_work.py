"""`svea.sweep`, and what is left of a study: time, GPU hours, disk."""

from typing import Any

import pytest
from fake_studies import short, write_finished

import svea
from svea.core import files
from svea.core.errors import UserError
from svea.runs.layout import replay_bytes
from svea.studies import Cost, Grid, PlannedRun, Study, Work, estimate_cost, plan_runs, read_states
from svea.studies import engines as local
from svea.studies.engines import Resources


def test_a_study_in_python(tmp_path, monkeypatch):
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


def test_time_is_estimated_from_the_studys_own_runs(tmp_path):
    study = Study(tmp_path, short(seeds="0-4"))
    write_finished(tmp_path, study.runs[0])  # 100 decisions in 21 s
    write_finished(tmp_path, study.runs[1], decision=50)
    states = read_states(study)
    found = estimate_cost(states, at_once=2, gpus=0.5)
    rate = (100 / 21 + 50 / 21) / 2
    assert found.done == 1 and found.seconds == pytest.approx((50 + 3 * 100) / rate / 2)
    assert found.gpu_hours == pytest.approx(found.seconds * 2 * 0.5 / 3600)
    assert found.timed == 2
    side_by_side = estimate_cost(states, at_once=1, together=2)
    assert side_by_side.seconds == pytest.approx(175 / rate), "50 and 100, then 100 and 100"


def test_the_warm_up_is_no_measure_of_speed(tmp_path):
    """Its decisions come without updates, which all follow at its end."""
    options = {"decisions": 100, "warmup": 60}
    study = Study(tmp_path, plan_runs([Grid(["walker_walk"], seeds="0-1")], options))
    write_finished(tmp_path, study.runs[0], decision=60)
    states = read_states(study)
    found = estimate_cost(states, at_once=1)
    assert found.seconds is None and [state.made for state in states] == [0, 0]
    assert [state.to_make for state in states] == [100, 100]
    write_finished(tmp_path, study.runs[1], decision=80)
    found = estimate_cost(read_states(study), at_once=1)
    assert found.seconds == pytest.approx((100 + 20) / (80 / 21))
    assert found.timed == 1


def test_an_unknown_speed_is_called_unknown(tmp_path):
    states = read_states(Study(tmp_path, short(seeds="0-19")))
    found = estimate_cost(states, at_once=2)
    assert found.seconds is None and found.gpu_hours == 0
    for gpus in (0.5, None):  # a share of a GPU, or an unknown one
        assert estimate_cost(states, at_once=2, gpus=gpus).gpu_hours is None


def test_disk_is_mostly_the_replay(tmp_path):
    def estimate(runs: tuple) -> Cost:
        return estimate_cost(read_states(Study(tmp_path, runs)), at_once=2)

    (run,) = plan_runs([Grid(["walker_walk"])])
    replay = replay_bytes(run.config)
    frames = 500_000 * 84 * 84 * 3
    assert frames < replay < 1.05 * frames
    assert replay < estimate((run,)).file_bytes < 1.1 * replay
    kept, unsaved = (
        plan_runs([Grid(["walker_walk"], seeds="0-9")], {"save_replay": saved})
        for saved in (True, False)
    )
    assert estimate(kept).file_bytes - estimate(unsaved).file_bytes == 10 * replay


def test_a_study_that_the_disk_cannot_hold_is_refused(tmp_path, monkeypatch):
    """Files of finished runs do not make room for the others."""
    usage = files.shutil.disk_usage(tmp_path)
    monkeypatch.setattr(files.shutil, "disk_usage", lambda path: usage._replace(free=10**6))
    study = Study(tmp_path / "not" / "there", short(seeds="0-1"))
    with pytest.raises(UserError, match=r"1\.0 MB are free"):
        Work(study, "local", Resources()).require_space()
    replay = write_finished(study.folder, study.runs[0]) / "replay"
    replay.mkdir()
    work = Work(study, "local", Resources())
    with (replay / "segment").open("wb") as file:
        file.truncate(work.cost.file_bytes)
    with pytest.raises(UserError):
        work.require_space()
