"""Numbers as text: one way to write each kind."""

import math
from typing import Any

import pytest

from svea.core import words


@pytest.mark.parametrize(
    ("show", "texts"),
    [
        (words.number, {1234.5: "1,234", 7.25: "7.2", 0.123: "0.12", math.nan: "–"}),
        (words.significant, {0.012345: "0.0123", 1234.5: "1.23e+03", math.nan: "–"}),
        (words.count, {6000: "6,000", 500_000: "500k", 62_500_000: "62.5M"}),
        (words.tick, {500: "500", 2500: "2.5k", 100_000: "100k", 1e6: "1M"}),
        (words.duration, {42: "42 s", 89.6: "90 s", 90: "2 min", 5399: "90 min", 5400: "1.5 h"}),
        (words.duration, {71 * 3600: "71.0 h", 125 * 3600: "5.2 days"}),
        (words.size, {12_700_000_000: "12.7 GB", 1_700_000: "1.7 MB", 300: "300 bytes"}),
        (words.one_line, {OSError("no  such  file"): "no such file", KeyError(): "KeyError"}),
    ],
)
def test_each_kind_of_number_is_written_in_one_way(show: Any, texts: dict[Any, str]) -> None:
    assert {value: show(value) for value in texts} == texts


def test_a_mean_has_its_deviation_where_there_is_one() -> None:
    assert words.mean_std(760.4, 144.6) == "760 ± 145"
    assert words.mean_std(760.4, math.nan) == "760"
    assert words.mean_std(0.891, 0.029, words.rate) == "0.89 ± 0.03"
    assert words.mean_std(math.nan, math.nan) == "–"


def test_plurals_and_lists_say_how_many() -> None:
    assert (words.plural(1, "run"), words.plural(2000, "run")) == ("1 run", "2,000 runs")
    assert words.listed(list("abcdefgh")) == "a, b, c, d, e, f and 2 more"
    assert words.decisions(250, 4) == "250 decisions = 1,000 frames"
