"""What is left of a study: time, GPU hours, disk."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from fake_studies import SHORT, short, write_finished

from svea.core import files
from svea.core.errors import UserError
from svea.runs.layout import replay_bytes
from svea.studies import Grid, Study, cost, plan_runs, read_states


def test_time_is_estimated_from_the_studys_own_runs(tmp_path: Path) -> None:
    study = Study(tmp_path, short(seeds="0-4"))
    write_finished(tmp_path, study.runs[0])  # 100 decisions in 21 s
    write_finished(tmp_path, study.runs[1], decision=50)
    states = read_states(study)
    found = cost.estimate_cost(states, at_once=2, gpus=0.5)
    rate = (100 / 21 + 50 / 21) / 2
    assert found.done == 1 and found.seconds == pytest.approx((50 + 3 * 100) / rate / 2)
    assert found.gpu_hours == pytest.approx(found.seconds * 2 * 0.5 / 3600)
    assert found.basis == "mean speed of 2 runs of this study"
    side_by_side = cost.estimate_cost(states, at_once=1, together=2)
    assert side_by_side.seconds == pytest.approx(175 / rate), "50 and 100, then 100 and 100"


def test_the_warm_up_is_no_measure_of_speed(tmp_path: Path) -> None:
    """Its decisions come without updates, which all follow at its end."""
    options = {"decisions": 100, "warmup": 60}
    study = Study(tmp_path, plan_runs([Grid(["walker_walk"], seeds="0-1")], options))
    write_finished(tmp_path, study.runs[0], decision=60)
    states = read_states(study)
    found = cost.estimate_cost(states, at_once=1)
    assert found.seconds is None and cost.decisions_made(states) == 0
    assert cost.decisions_left(states) == 200
    write_finished(tmp_path, study.runs[1], decision=80)
    found = cost.estimate_cost(read_states(study), at_once=1)
    assert found.seconds == pytest.approx((100 + 20) / (80 / 21))
    assert found.basis == "mean speed of 1 run of this study"


def test_an_unknown_speed_is_called_unknown(tmp_path: Path) -> None:
    states = read_states(Study(tmp_path, short(seeds="0-19")))
    found = cost.estimate_cost(states, at_once=2)
    assert found.seconds is None and found.gpu_hours == 0
    assert "no run" in found.basis
    for gpus in (0.5, None):  # a share of a GPU, or an unknown one
        assert cost.estimate_cost(states, at_once=2, gpus=gpus).gpu_hours is None


def test_disk_is_mostly_the_replay(tmp_path: Path) -> None:
    def estimate(runs: tuple) -> cost.Cost:
        return cost.estimate_cost(read_states(Study(tmp_path, runs)), at_once=2)

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


def test_a_study_that_the_disk_cannot_hold_is_refused(tmp_path: Path) -> None:
    study = Study(tmp_path / "not" / "there", short())
    states = read_states(study)
    found = dataclasses.replace(cost.estimate_cost(states, 1), file_bytes=10**18)
    with pytest.raises(UserError, match=r"the study will need 1020000000\.0 GB in .*--out"):
        cost.require_space(study, states, found)


def test_files_of_finished_runs_do_not_make_room_for_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = Study(tmp_path, short(seeds="0-1"))
    replay = write_finished(tmp_path, study.runs[0]) / "replay"
    replay.mkdir()
    states = read_states(study)
    found = cost.estimate_cost(states, 1)
    with (replay / "segment").open("wb") as file:
        file.truncate(found.file_bytes)
    usage = files.shutil.disk_usage(tmp_path)
    monkeypatch.setattr(files.shutil, "disk_usage", lambda path: usage._replace(free=10**6))
    with pytest.raises(UserError, match="the study will need"):
        cost.require_space(study, states, found)


def test_the_cost_in_words(tmp_path: Path) -> None:
    study = Study(tmp_path, plan_runs([Grid(["walker_walk"], seeds="0-19")], SHORT))
    first, time, gpu, disk = cost.estimate_cost(read_states(study), at_once=2).lines()
    assert first == "20 runs, 2,000 decisions left" and "unknown" in time
    assert gpu.startswith("GPU hours: none") and disk.startswith("disk: up to")
    assert cost.estimate_cost(read_states(study), 2, gpus=0.5).lines()[2] == "GPU hours: unknown"
    write_finished(tmp_path, study.runs[0])
    states = read_states(study)
    assert cost.estimate_cost(states[:1], 2).lines() == ["1 run, all of them done"]
    time = cost.estimate_cost(states, at_once=1).lines(limit=100)[1]
    assert time.startswith("time left (19 runs): about 7 min, at least 4 calls"), time
    played = plan_runs([Grid(["walker_walk"])], SHORT, modes=["train"])
    lines = cost.estimate_cost(read_states(Study(tmp_path, played)), 2).lines()
    assert lines[0] == "1 run" and lines[1].startswith("left (1 run): no training; evaluations")
