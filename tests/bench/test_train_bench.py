"""`svea bench train`: decisions of all seeds, over the time they took."""

from __future__ import annotations

from typing import Any

import pytest
from tiny_runs import TINY

from svea.bench.decisions import time_training
from svea.cli.bench import training_line
from svea.core.errors import UserError


def test_training_counts_the_decisions_of_all_seeds() -> None:
    settings: dict[str, Any] = {k: v for k, v in TINY.items() if k not in ("decisions", "warmup")}
    (row,) = time_training([0, 1], 0.3, task="toy:make", envs=1, **settings)
    assert (row.seeds, row.envs) == (2, 1)
    assert row.decisions > 0 and row.seconds >= 0.3
    assert row.decisions_per_second == pytest.approx(row.decisions / row.seconds)
    assert "2 seeds with 1 environment each" in training_line(row)


def test_nothing_to_measure_is_refused() -> None:
    with pytest.raises(UserError, match=r"no seed is named"):
        time_training([], 1, task="toy:make", envs=1)
    with pytest.raises(UserError, match=r"seconds is -1; allowed: more than 0"):
        time_training([0], -1, task="toy:make", envs=1)
