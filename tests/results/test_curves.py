"""Curves over seeds, and return over wall time."""

import math
from pathlib import Path

import numpy as np
import pytest
from fake_runs import write_run

from svea.results.analyses import walltimes
from svea.results.read import Curve, read_run
from svea.results.summary import hours_to, mean_curve, over_hours
from svea.results.tables import to_rows


def test_the_mean_curve_covers_what_all_seeds_have(tmp_path: Path) -> None:
    long = write_run(tmp_path / "a", seed=0, final={"train": 300}, evaluations=4)
    short = write_run(tmp_path / "b", seed=1, final={"train": 600}, evaluations=3)
    mean = mean_curve(read_run(run).evaluation_curve("train") for run in (long, short))
    assert mean is not None
    np.testing.assert_array_equal(mean.curve.decisions, [0, 2000, 3000, 4000, 6000])
    np.testing.assert_allclose(mean.curve.returns, 450 * mean.curve.decisions / 6000)
    np.testing.assert_allclose(mean.std, mean.curve.decisions / 6000 * 150 * math.sqrt(2))


def test_hours_to_a_return_are_read_off_the_mean_curve(tmp_path: Path) -> None:
    # fake runs take 0.1 s a decision and climb in a straight line, so hours follow from returns.
    write_run(tmp_path / "a", seed=0, final={"train": 300})
    write_run(tmp_path / "b", seed=1, final={"train": 500})
    write_run(tmp_path / "c", method="drq", augment="none", final={"train": 200}, decisions=12_000)
    drq, svea = to_rows(walltimes([tmp_path])[0])
    assert (svea["setting"], svea["ms per decision"], svea["last return"]) == (
        "svea + conv", "100", "400",
    )  # fmt: skip
    whole = 600 / 3600  # nine tenths of the lowest best return, 200, are reached by both
    assert float(svea["hours to 180"]) == pytest.approx(whole * 180 / 400, rel=0.01)
    assert float(drq["hours to 180"]) == pytest.approx(2 * whole * 0.9, rel=0.01)
    curve = Curve(np.array([0.0, 2.0]), np.array([0.0, 400.0]))
    assert hours_to(curve, 0) == 0 and hours_to(curve, 100) == 0.5
    assert math.isnan(hours_to(curve, 401))


def test_hours_are_those_logged_at_each_evaluation(tmp_path: Path) -> None:
    """A run that slows down reaches its first returns early, whatever its mean speed."""
    folder = write_run(tmp_path / "a", final={"train": 400}, evaluations=3)
    lines = (folder / "metrics.jsonl").read_text().replace('"seconds": 300.0', '"seconds": 36.0')
    (folder / "metrics.jsonl").write_text(lines)  # half of the decisions in the first 36 s of 600
    found = over_hours([read_run(folder)], "train")
    assert found is not None
    np.testing.assert_allclose(found.curve.returns, [0, 200, 400])
    np.testing.assert_allclose(found.curve.decisions, [0, 0.01, 600 / 3600])
