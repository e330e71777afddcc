"""Numbers as text: one way to write each kind."""

from __future__ import annotations

import math

import pytest

from svea.core import words


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(42, "42 s"), (89.6, "90 s"), (90, "2 min"), (5399, "90 min"), (5400, "1.5 h"),
     (71 * 3600, "71.0 h"), (125 * 3600, "5.2 days")],
)  # fmt: skip
def test_durations_are_in_the_unit_that_fits(seconds: float, text: str) -> None:
    assert words.duration(seconds) == text


def test_a_mean_has_its_deviation_where_there_is_one() -> None:
    assert words.mean_std(760.4, 144.6) == "760 ± 145"
    assert words.mean_std(760.4, math.nan) == "760"
    assert words.mean_std(0.891, 0.029, words.rate) == "0.89 ± 0.03"
    assert words.mean_std(math.nan, math.nan) == "–"


def test_plurals_and_lists_say_how_many() -> None:
    assert (words.plural(1, "run"), words.plural(2000, "run")) == ("1 run", "2,000 runs")
    assert words.listed(list("abcdefgh")) == "a, b, c, d, e, f and 2 more"
    assert words.decisions(250, 4) == "250 decisions = 1,000 frames"
