"""Rates of learning, evaluations and saves left out."""

from __future__ import annotations

import pytest

from svea.training import rates


def test_rates_are_since_the_last_time_without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(rates.time, "monotonic", lambda: clock[0])
    measured = rates.Rates(updates=100, decision=50)
    clock[0] = 3.0
    with measured.paused():
        clock[0] = 9.0
    clock[0] = 11.0
    assert measured.take(150, 60) == {"updates_per_second": 10.0, "decisions_per_second": 2.0}
    clock[0] = 12.0
    assert measured.take(153, 64) == {"updates_per_second": 3.0, "decisions_per_second": 4.0}
