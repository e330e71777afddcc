"""The progress of a study as rows of text."""

from __future__ import annotations

from pathlib import Path

from fake_studies import short, write_finished, write_journal

from svea.studies import Study, read_states
from svea.studies.watch import headline, rows, table


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


def test_many_runs_are_shown_by_setting(tmp_path: Path) -> None:
    study = Study(tmp_path, short(("walker_walk", "finger_spin"), seeds="0-19"))
    write_finished(tmp_path, study.runs[0])
    lines = table(read_states(study))
    assert [line["run"] for line in lines] == ["walker_walk-svea-conv", "finger_spin-svea-conv"]
    assert lines[0]["state"] == "19 queued, 1 done" and lines[0]["decisions"] == "100/2,000"
