"""Curves over seeds, and return over wall time."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from fake_runs import write_run

from svea.results.groups import group_runs
from svea.results.read import read_run
from svea.results.summary import common_level, over_hours, seconds_per_decision, wall_times


def test_hours_to_a_return_are_read_off_the_mean_curve(tmp_path: Path) -> None:
    # fake runs take 0.1 s a decision and climb in a straight line, so hours follow from returns.
    runs = [
        read_run(write_run(tmp_path / "a", seed=0, final={"train": 300})),
        read_run(write_run(tmp_path / "b", seed=1, final={"train": 500})),
        read_run(write_run(tmp_path / "c", method="drq", final={"train": 200}, decisions=12_000)),
    ]
    drq, svea = wall_times(group_runs(runs), "train")
    whole = 600 / 3600
    assert svea.milliseconds == pytest.approx(100)
    np.testing.assert_allclose(svea.curve.returns[-1], 400)
    np.testing.assert_allclose(svea.curve.decisions[-1], whole)
    assert common_level([drq, svea]) == pytest.approx(180)
    assert svea.hours_to(180) == pytest.approx(whole * 180 / 400)
    assert drq.hours_to(180) == pytest.approx(2 * whole * 0.9)
    assert svea.hours_to(0) == 0 and math.isnan(svea.hours_to(401))
    assert wall_times(group_runs(runs), "video_hard") == []


def test_hours_are_those_logged_at_each_evaluation(tmp_path: Path) -> None:
    """A run that slows down reaches its first returns early, whatever its mean speed."""
    folder = write_run(tmp_path / "a", final={"train": 400}, evaluations=3)
    lines = (folder / "metrics.jsonl").read_text().replace('"seconds": 300.0', '"seconds": 36.0')
    (folder / "metrics.jsonl").write_text(lines)  # half of the decisions in the first 36 s of 600
    run = read_run(folder)
    found = over_hours([run], "train")
    assert found is not None
    np.testing.assert_allclose(found.curve.returns, [0, 200, 400])
    np.testing.assert_allclose(found.curve.decisions, [0, 0.01, 600 / 3600])
    (times,) = wall_times(group_runs([run]), "train")
    np.testing.assert_array_equal(times.curve.decisions, found.curve.decisions)
    assert seconds_per_decision([run]) == pytest.approx(0.1)
