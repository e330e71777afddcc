"""The progress of a study as rows of text."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from fake_studies import SHORT, short, write_finished, write_journal

from svea.studies import Grid, Study, plan_runs, read_states
from svea.studies.cost import estimate_cost
from svea.studies.watch import after_training, headline, rows, table, what_continues


def test_headline_and_rows(tmp_path: Path) -> None:
    study = Study(tmp_path, short(seeds="0-2"))
    write_finished(tmp_path, study.runs[0])
    write_journal(tmp_path, study.runs[1], "failed", "failed", "failed")
    states = read_states(study)
    assert headline(states) == "3 runs: 1 queued, 0 running, 1 done, 1 failed"
    assert headline(states, rate=10.0).endswith("; ETA 10 s")  # 100 decisions of the queued one
    assert [row["state"] for row in rows(states)] == ["done", "failed", "queued"]
    lines = table(states)
    assert lines[0]["note"] == "why failed" and lines[-1]["last returns"] == "train 8"


def test_a_run_that_ended_between_two_lines_of_its_log_has_all_decisions(tmp_path: Path) -> None:
    study = Study(tmp_path, plan_runs([Grid(["walker_walk"])], SHORT | {"eval_every": 0}))
    log = write_finished(tmp_path, study.runs[0]) / "metrics.jsonl"
    log.write_text('{"kind": "train", "decision": 90, "seconds": 20.0}\n')
    states = read_states(study)
    (row,), (line,) = rows(states), table(states)
    assert (row["state"], row["decision"]) == ("done", 100) and line["decisions"] == "100/100"


def test_a_run_that_was_stopped_for_good_is_not_called_done(tmp_path: Path) -> None:
    runs = plan_runs([Grid(["walker_walk"], seeds="0-1")], SHORT | {"save_replay": False})
    write_finished(tmp_path, runs[0], decision=60)
    write_journal(tmp_path, runs[0], "stopped", saved=60)
    write_finished(tmp_path, runs[1])
    states = read_states(Study(tmp_path, runs))
    assert headline(states, 9.0) == "2 runs: 0 queued, 0 running, 1 done, 1 stopped, 0 failed"
    first, second = table(states)
    note = "reached 60 of 100 decisions; cannot be continued (save_replay is false)"
    assert (first["state"], first["decisions"], first["note"]) == ("stopped", "60/100", note)
    assert (second["state"], second["note"]) == ("done", "")
    assert [row["can_continue"] for row in rows(states)] == [False, True]
    cost = estimate_cost(states, at_once=1)
    assert (cost.done, cost.stopped, cost.updates) == (1, 1, 0)


def test_what_the_same_command_does_with_stopped_runs(tmp_path: Path) -> None:
    grid = Grid(["walker_walk"], seeds="0-3")
    begun, saved, trained, _ = runs = plan_runs([grid], SHORT | {"save_replay": False})
    kept = plan_runs([Grid(["finger_spin"])], SHORT)
    write_finished(tmp_path, trained)
    write_finished(tmp_path, kept[0], decision=50)
    (write_finished(tmp_path, begun, decision=50) / "checkpoints" / "000000050").rmdir()
    states = read_states(Study(tmp_path, (*runs, *kept)))
    assert what_continues(states) == "the same command continues", "without a checkpoint it begins"
    running = [dataclasses.replace(states[0], state="running"), *states[1:]]
    lost = "1 run cannot be continued: save_replay is false"
    assert what_continues(running) == f"{lost}; the same command does the rest", "it will save"
    write_finished(tmp_path, saved, decision=50)
    write_journal(tmp_path, saved, "stopped", saved=50)
    states = read_states(Study(tmp_path, (*runs, *kept)))
    assert what_continues(states) == f"{lost}; the same command does the rest"
    assert what_continues(states[1:3]) == lost, "nothing is left to do"


def test_a_trained_run_says_what_follows(tmp_path: Path) -> None:
    modes = ["train", "color_hard"]
    study = Study(tmp_path, plan_runs([Grid(["walker_walk"], seeds="0-1")], SHORT, modes=modes))
    for run in study.runs:
        write_finished(tmp_path, run)
    queued = read_states(study)
    assert {line["note"] for line in table(queued)} == {""}
    states = [dataclasses.replace(queued[0], state="running"), queued[1]]
    assert headline(states) == "2 runs: 1 queued, 1 running (1 past training), 0 done, 0 failed"
    notes = [line["note"] for line in table(states)]
    assert notes == ["being evaluated in train, color_hard", ""]
    progress = dataclasses.replace(states[0].progress, missing_export=True)
    assert after_training(dataclasses.replace(states[0], progress=progress)) == "being exported"
    progress = dataclasses.replace(states[0].progress, missing_modes=())
    alone = dataclasses.replace(states[0], progress=progress)
    assert after_training(alone) == "waiting for others of its process"


def test_many_runs_are_shown_by_setting(tmp_path: Path) -> None:
    study = Study(tmp_path, short(("walker_walk", "finger_spin"), seeds="0-19"))
    write_finished(tmp_path, study.runs[0])
    lines = table(read_states(study))
    assert [line["run"] for line in lines] == ["walker_walk-svea-conv", "finger_spin-svea-conv"]
    assert lines[0]["state"] == "19 queued, 1 done" and lines[0]["decisions"] == "100/2,000"
