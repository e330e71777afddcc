"""`svea bench`: what is compared, and how calls are timed."""

from typing import Any

import pytest
from tiny_runs import TINY

from svea import bench
from svea.bench.augment import REFERENCE, time_augmentations
from svea.bench.decisions import time_environments, time_training
from svea.bench.update import time_updates
from svea.core.errors import UserError


def test_calls_take_turns_and_the_first_round_does_not_count():
    order = []
    calls = [lambda: order.append("a"), lambda: order.append("b")]
    assert bench.times_ms(calls, 2).shape == (2, 2)
    assert order == ["a", "b"] * 3


def test_environments_are_compared_with_the_first_mode_and_the_first_task(monkeypatch):
    monkeypatch.delenv("SVEA_DATA", raising=False)
    modes = ["train", "picture_colors"]
    rows = time_environments(
        tasks=["cartpole_balance", "robot_reach"], modes=modes, decisions=60,  # more than it has
        resets=1, image_size=16, rendering="fast",
    )  # fmt: skip
    assert [row["mode"] for row in rows] == 2 * modes
    train, other, robot, _ = rows
    assert train["extra"] == train["extra_reset_ms"] == robot["extra"] == 0 and train["ms"] > 0
    assert other["extra"] == pytest.approx(other["ms"] / train["ms"] - 1)
    assert other["extra_reset_ms"] == pytest.approx(other["reset_ms"] - train["reset_ms"])
    assert train["relative"] == 1 and robot["relative"] == pytest.approx(robot["ms"] / train["ms"])


def test_training_counts_the_decisions_of_all_seeds():
    settings: dict[str, Any] = {k: v for k, v in TINY.items() if k not in ("decisions", "warmup")}
    row = time_training([0, 1], 0.3, task="toy:make", envs=1, **settings)
    assert (row["seeds"], row["envs"]) == (2, 1)
    assert row["decisions"] > 0 and row["seconds"] >= 0.3
    assert row["decisions_per_second"] == pytest.approx(row["decisions"] / row["seconds"])


@pytest.mark.parametrize(
    "measure",
    [
        lambda: time_environments(["walker_walk"], ["train"], decisions=0),
        lambda: time_environments([], ["train"]),
        lambda: time_training([], 1, task="toy:make", envs=1),
        lambda: time_training([0], -1, task="toy:make", envs=1),
        lambda: time_augmentations(["shift"], repeats=0),
        lambda: time_augmentations(["shif"]),
        lambda: time_updates(["svea"], device=bench.CPU, repeats=0),
        lambda: time_updates([], device=bench.CPU),
        lambda: time_updates(["sveaa"], device=bench.CPU),
    ],
)
def test_nothing_to_measure_is_refused(measure):
    with pytest.raises(UserError):
        measure()


def test_every_augmentation_is_timed_with_its_loop_next_to_a_yardstick():
    reference, shift, of_bytes = time_augmentations(["shift"], batch=2, size=12, repeats=3)
    assert (reference["name"], reference["loop_ms"], reference["relative"]) == (REFERENCE, None, 1)
    assert (shift["name"], of_bytes["name"]) == ("shift", "shift (uint8)")
    assert shift["batch"] == (2, 9, 12, 12) and shift["ms"] > 0 and (shift["loop_ms"] or 0) > 0


# The counts behind the numbers of `svea bench update` ---------------------------------------------


@pytest.fixture(scope="module")
def rows():
    methods = ("svea", "drq", "madi", "sgqn")
    made = time_updates(methods, device=bench.CPU, how="eager", batch=1, repeats=1)
    return dict(zip(methods, made, strict=True))


def test_operations_are_those_of_the_paper_s_shapes(rows):
    """By hand: 11 layers of 32 filters, 84 -> 41 pixels, then two less with every layer."""
    first = 2 * 9 * 9 * 32 * 41**2
    forward = first + sum(2 * 9 * 32 * 32 * side**2 for side in range(39, 20, -2))
    # Both trunks see the successor, the policy every other update; the critic's views go back too,
    # at twice the cost, but not to the pixels.
    for method, views in (("svea", 2), ("drq", 1)):
        passes = (2 + views + 0.5) * forward + views * (2 * forward - first)
        assert 1 <= rows[method]["gflop"] * 1e9 / passes < 1.06, method


def test_svea_trains_no_more_parameters_than_drq(rows):
    """The paper's cost claim; the number by hand for 32 filters, 100 and 1,024 units, 6 actions."""
    trunk = (9 * 9 + 1) * 32 + 10 * (9 * 32 + 1) * 32
    projection = 32 * 21 * 21 * 100 + 100 + 2 * 100  # with LayerNorm
    q = (106 * 1024 + 1024) + (1024 * 1024 + 1024) + (1024 + 1)
    policy = (100 * 1024 + 1024) + (1024 * 1024 + 1024) + (1024 * 12 + 12)
    by_hand = trunk + 2 * projection + 2 * q + policy + 1  # and the temperature
    assert rows["svea"]["parameters"] == rows["drq"]["parameters"] == by_hand


def test_the_masker_and_the_attributions_are_counted(rows):
    """MaDi's masker has 219 million multiplications per observation; SGQN adds passes and more."""
    madi, sgqn = rows["madi"], rows["sgqn"]
    mask = 2 * 3 * 84**2 * 9 * (3 * 32 + 32 * 32 + 32)  # of one observation, forward
    passes = 1 + 2 + 0.5 + 2 * 2  # target, both views, policy every other time; views backward
    assert 0.6 < (madi["gflop"] * 1e9 - 1.9e9) / (passes * mask) < 1.3, madi["gflop"]
    assert madi["parameters"] - 10_433 == sgqn["parameters"] - 1_625_961
    parts = [part for row in rows.values() for part in row["parts"].items()]
    assert all(value >= 0 for name, value in parts if name != "backward")
