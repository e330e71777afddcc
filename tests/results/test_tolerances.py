"""How far factors may go: known curves, a slow oracle, and what readers are shown."""

import math
from pathlib import Path

import numpy as np
import pytest
from fake_runs import write_run
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from svea.config.factors import FACTORS, at, share_of_range
from svea.results.factors import HALF, MOST, reach, responses, tolerances, verdicts
from svea.results.groups import Group, group_runs
from svea.results.read import read_run
from svea.results.report import report
from svea.runs.layout import factor_file

ROLL = {-180.0: 10.0, -90.0: 100.0, 0.0: 300.0, 90.0: 300.0, 180.0: 0.0}
LIGHT = {0.0: 160.0, 1.0: 300.0, 3.0: 310.0}


def groups(folder: Path, **runs: dict[str, float]) -> list[Group]:
    """A group for each method, with its mean return by mode."""
    made = [
        write_run(folder / name, method=name, final=final, curves=("train",))
        for name, final in runs.items()
    ]
    return group_runs([read_run(one) for one in made])


def modes(name: str, curve: dict[float, float]) -> dict[str, float]:
    return {at(name, value): height for value, height in curve.items()}


@pytest.fixture
def several(tmp_path: Path) -> list[Group]:
    both = modes("camera.roll", ROLL) | modes("light.strength", LIGHT)
    tough = {mode: 200.0 for mode in both}
    return groups(tmp_path, svea=both, drq=tough)


def test_tolerances_of_known_curves(several: list[Group]):
    found = {(one.group.method, one.factor.name): one for one in responses(several)}
    roll, light = found["svea", "camera.roll"], found["svea", "light.strength"]
    low, high = (end.point for end in roll.ends(HALF))
    assert low == pytest.approx(-90 + 90 * 50 / 200) and high == pytest.approx(135)
    low, high = (end.point for end in roll.ends(MOST))
    assert low == pytest.approx(-13.5) and high == pytest.approx(90 + 9)
    assert [end.point for end in light.ends(HALF)] == [0, 3] and light.room(HALF) == 1
    assert light.room(MOST) == pytest.approx(30 / 140) and light.breaks_at is None
    assert roll.room(HALF) == pytest.approx(67.5 / 180) and roll.breaks_at == pytest.approx(-67.5)
    tough = found["drq", "camera.roll"]
    assert tough.room(MOST) == 1 and tough.breaks_at is None
    for one in found.values():
        for share in (MOST, HALF):
            for end in one.ends(share):
                assert end.low - 1e-9 <= end.point <= end.high + 1e-9
    assert [one.factor.name for one in responses(several) if one.group.method == "svea"] == [
        "camera.roll", "light.strength",
    ]  # fmt: skip
    first, second = verdicts(responses(several))
    assert "no factor" in first and "camera.roll breaks it first, at -67.5" in second


HEIGHTS = st.lists(st.integers(0, 100), min_size=2, max_size=8)


@given(HEIGHTS, st.integers(0, 7), st.sampled_from([-1, 1]))
def test_reach_is_where_a_fine_walk_first_falls_below(heights, train, side):
    train = min(train, len(heights) - 1)
    x, y = np.arange(len(heights), dtype=float), np.array(heights, float)
    (found,) = reach(x, y[None], train, 0.5, side)
    if y[train] <= 0:
        assert math.isnan(found)
        return
    walk = np.arange(train, -1e-9, -1e-3) if side < 0 else np.arange(train, x[-1] + 1e-9, 1e-3)
    below = walk[np.interp(walk, x, y) < 0.5 * y[train] - 1e-9]
    expected = below[0] if below.size else (x[-1] if side > 0 else 0.0)
    assert found == pytest.approx(expected, abs=2e-3)


def test_intervals_are_over_episodes_that_all_values_share(tmp_path: Path):
    (group,) = groups(tmp_path, svea=modes("camera.roll", ROLL))
    (one,) = responses([group])
    low, high = one.band
    assert (low <= one.means).all() and (one.means <= high).all() and (low < high).any()
    ratio = one.drawn[:, 3] / one.drawn[:, 2]  # both have the same episodes, and the same mean
    assert ratio.std() < 1e-9


@pytest.mark.parametrize("train", [0.0, -5.0])
def test_without_a_training_return_there_is_nothing_to_keep(tmp_path: Path, train: float):
    found = groups(tmp_path, svea=modes("camera.roll", ROLL | {0.0: train}))
    (one,) = responses(found)
    assert math.isnan(one.room(HALF)) and one.breaks_at is None
    assert "no return" in next(verdicts([one]))
    assert tolerances([one]).rows[0].cells["keeps 50 %"].text == "–"


def test_success_stands_in_the_table_where_a_task_knows_it(tmp_path: Path):
    final = modes("camera.roll", ROLL)
    rates = {mode: 0.1 if mode != "train" else 0.9 for mode in final}
    run = write_run(tmp_path / "run", task="robot_push", final=final, success=rates)
    (one,) = responses(group_runs([read_run(run)]))
    assert one.success.tolist() == [0.1, 0.1, 0.9, 0.1, 0.1]
    for brief in (False, True):
        assert "success" in tolerances([one], brief=brief).rows[0].cells


def test_a_report_has_a_panel_per_factor_and_no_row_per_value(several, tmp_path: Path):
    for run in (run for group in several for run in group.runs):
        for mode in ("train", "camera.roll=-180", "camera.roll=180", "camera.roll=-90"):
            path = factor_file(run.folder, mode)
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (16, 16), "red").save(path)
    factor_file(several[0].runs[0].folder, "camera.roll=180").write_bytes(b"damaged")
    page = report(tmp_path, tmp_path / "page.html", figures=tmp_path / "figures")
    text = page.read_text()
    assert "Tolerance by factor" in text and "breaks it first" in text
    results = (tmp_path / "figures/results.csv").read_text()
    assert "camera.roll" not in results and "train" in results
    panels = sorted(path.stem for path in (tmp_path / "figures").glob("factor-*.csv"))
    assert panels == ["factor-walker_walk-camera-roll", "factor-walker_walk-light-strength"]
    assert text.index("walker_walk: camera.roll") < text.index("walker_walk: light.strength")


@pytest.mark.parametrize("name", FACTORS)
@pytest.mark.parametrize("count", [2, 3, 4, 7, 9])
def test_values_span_the_range_and_have_the_training_value(name: str, count: int):
    factor = FACTORS[name]
    values = factor.values(count)
    assert factor.training in values and values == sorted(set(values)) and len(values) <= count
    assert len(values) == count or factor.whole
    for value in values:
        assert factor.check(value) == value and factor.parse(f"{value:.12g}") == value
    if count > 2:
        assert [values[0], values[-1]] == [factor.least, factor.most]
        shares = sorted(share_of_range(name, v) for v in values if v > factor.training)
        steps = np.diff([0, *shares])
        assert factor.whole or steps.max() - steps.min() < 0.01
