"""`svea bench`: what is compared, and how calls are timed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tiny_runs import TINY

from svea.bench import timing
from svea.bench.augment import REFERENCE, time_augmentations
from svea.bench.decisions import time_environments, time_training
from svea.bench.update import time_updates
from svea.core.errors import UserError


def test_calls_take_turns_and_the_first_round_does_not_count():
    order = []
    calls = [lambda: order.append("a"), lambda: order.append("b")]
    assert timing.times_ms(calls, 2).shape == (2, 2)
    assert order == ["a", "b"] * 3


def test_environment_rows_compare_with_the_first_mode(monkeypatch):
    monkeypatch.delenv("SVEA_DATA", raising=False)
    rows = time_environments(
        tasks=["cartpole_balance"],
        modes=["train", "distracting_cs:0.3"],
        decisions=2,
        resets=1,
        image_size=16,
        rendering="fast",
    )
    assert [row.mode for row in rows] == ["train", "distracting_cs:0.3 (procedural)"]
    train, other = rows
    assert train.extra == 0 and train.extra_reset_ms == 0 and train.ms > 0
    assert other.extra == pytest.approx(other.ms / train.ms - 1)
    assert other.extra_reset_ms == pytest.approx(other.reset_ms - train.reset_ms)


def test_tasks_are_compared_with_the_first_and_may_end_their_episodes():
    rows = time_environments(
        tasks=["cartpole_balance", "robot_reach"],
        modes=["train"],
        decisions=60,  # the robot's episodes have 50
        resets=1,
        image_size=16,
        rendering="fast",
    )
    assert [(row.task, row.extra) for row in rows] == [("cartpole_balance", 0), ("robot_reach", 0)]
    assert rows[0].relative == 1
    assert rows[1].relative == pytest.approx(rows[1].ms / rows[0].ms)


def test_training_counts_the_decisions_of_all_seeds() -> None:
    settings: dict[str, Any] = {k: v for k, v in TINY.items() if k not in ("decisions", "warmup")}
    row = time_training([0, 1], 0.3, task="toy:make", envs=1, **settings)
    assert (row.seeds, row.envs) == (2, 1)
    assert row.decisions > 0 and row.seconds >= 0.3
    assert row.decisions_per_second == pytest.approx(row.decisions / row.seconds)


@pytest.mark.parametrize(
    "measure",
    [
        lambda: time_environments(["walker_walk"], ["train"], decisions=0),
        lambda: time_environments([], ["train"]),
        lambda: time_training([], 1, task="toy:make", envs=1),
        lambda: time_training([0], -1, task="toy:make", envs=1),
        lambda: time_augmentations(["shift"], repeats=0),
        lambda: time_augmentations(["shif"]),
        lambda: time_updates(["svea"], device=timing.CPU, repeats=0),
        lambda: time_updates([], device=timing.CPU),
        lambda: time_updates(["sveaa"], device=timing.CPU),
    ],
)
def test_nothing_to_measure_is_refused(measure: Callable[[], object]) -> None:
    with pytest.raises(UserError):
        measure()


def test_every_augmentation_is_timed_with_its_loop_next_to_a_yardstick() -> None:
    reference, shift, of_bytes = time_augmentations(["shift"], batch=2, size=12, repeats=3)
    assert (reference.name, reference.loop_ms, reference.relative) == (REFERENCE, None, 1)
    assert (shift.name, of_bytes.name) == ("shift", "shift (uint8)")
    assert shift.batch == (2, 9, 12, 12) and shift.ms > 0 and (shift.loop_ms or 0) > 0
