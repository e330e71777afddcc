"""How calls are timed."""

from __future__ import annotations

from svea.bench import timing


def test_calls_take_turns_and_the_first_round_does_not_count():
    order = []
    calls = [lambda: order.append("a"), lambda: order.append("b")]
    assert len(timing.median_ms_in_turns(calls, 2)) == 2
    assert order == ["a", "b"] * 3
