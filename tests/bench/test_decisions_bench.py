"""`svea bench env` and `svea bench train`: what is compared, and how calls are timed."""

from __future__ import annotations

from typing import Any

import pytest
from tiny_runs import TINY

from svea.bench import timing
from svea.bench.decisions import time_environments, time_training
from svea.cli.bench import training_line
from svea.core.errors import UserError


def test_calls_take_turns_and_the_first_round_does_not_count():
    order = []
    calls = [lambda: order.append("a"), lambda: order.append("b")]
    assert len(timing.median_ms_in_turns(calls, 2)) == 2
    assert order == ["a", "b"] * 3


def test_environment_rows_compare_with_the_first_mode(monkeypatch):
    monkeypatch.delenv("SVEA_DATA", raising=False)
    rows = time_environments(
        tasks=["cartpole_balance"],
        modes=["train", "distracting_cs:0.3"],
        decisions=2,
        resets=1,
        size=16,
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
        size=16,
        rendering="fast",
    )
    assert [(row.task, row.extra) for row in rows] == [("cartpole_balance", 0), ("robot_reach", 0)]
    assert rows[0].relative == 1
    assert rows[1].relative == pytest.approx(rows[1].ms / rows[0].ms)


def test_training_counts_the_decisions_of_all_seeds() -> None:
    settings: dict[str, Any] = {k: v for k, v in TINY.items() if k not in ("decisions", "warmup")}
    (row,) = time_training([0, 1], 0.3, task="toy:make", envs=1, **settings)
    assert (row.seeds, row.envs) == (2, 1)
    assert row.decisions > 0 and row.seconds >= 0.3
    assert row.decisions_per_second == pytest.approx(row.decisions / row.seconds)
    assert "2 seeds with 1 environment each" in training_line(row)


def test_nothing_to_measure_is_refused() -> None:
    with pytest.raises(UserError, match="decisions is 0"):
        time_environments(decisions=0)
    with pytest.raises(UserError, match=r"no seed is named"):
        time_training([], 1, task="toy:make", envs=1)
    with pytest.raises(UserError, match=r"seconds is -1; allowed: more than 0"):
        time_training([0], -1, task="toy:make", envs=1)
