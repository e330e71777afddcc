"""Several runs in one process."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tiny_runs import tiny
from whole_runs import assert_same

from svea.errors import SveaError
from svea.training import train, train_together

torch.set_num_threads(1)


def test_runs_that_take_turns_are_the_runs_alone(tmp_path: Path) -> None:
    alone = [train(tiny(tmp_path / f"alone-{seed}", seed=seed)) for seed in (0, 1)]
    together = train_together([tiny(tmp_path / f"together-{seed}", seed=seed) for seed in (0, 1)])
    for one, other in zip(alone, together, strict=True):
        assert_same(one, other)


def test_a_run_that_fails_does_not_end_the_others(tmp_path: Path) -> None:
    good, bad = tiny(tmp_path / "good"), tiny(tmp_path / "bad", "toy:make_broken", seed=1)
    with pytest.raises(SveaError, match="the toy broke"):
        train_together([bad, good])
    assert_same(train(tiny(tmp_path / "alone")), tmp_path / "good")
