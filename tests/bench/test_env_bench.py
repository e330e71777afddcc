"""`svea bench env`: what is compared with what."""

from __future__ import annotations

import pytest

from svea.bench.decisions import time_environments
from svea.core.errors import UserError


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


def test_nothing_to_measure_is_refused():
    with pytest.raises(UserError, match="decisions is 0"):
        time_environments(decisions=0)
