"""Several runs in one process."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tiny_runs import tiny
from whole_runs import assert_same

from svea.config import Config
from svea.errors import SveaError
from svea.training import train, train_together

torch.set_num_threads(1)


def test_runs_that_take_turns_are_the_runs_alone(tmp_path: Path) -> None:
    alone = [train(tiny(tmp_path / f"alone-{seed}", seed=seed)) for seed in (0, 1)]
    together = train_together([tiny(tmp_path / f"together-{seed}", seed=seed) for seed in (0, 1)])
    for one, other in zip(alone, together, strict=True):
        assert_same(one, other)


@pytest.mark.parametrize("speed", ["eager", "compiled"])
def test_runs_that_take_turns_are_the_runs_alone_where_the_number_of_threads_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, speed: str
) -> None:
    """A trainer leaves a core to its environments, so the second begins with fewer threads.

    The layers are so large that the last bits of their decomposition show the difference, and have
    the 16 filters that the kernels in C take.
    """
    network = {"layers": 4, "filters": 16, "projection": 50, "hidden": 256}
    short = {"decisions": 16, "eval_every": 16, "network": network, "speed": speed}
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)

    def config(name: str, seed: int) -> Config:
        torch.set_num_threads(2)  # as a process begins
        return tiny(tmp_path / f"{name}-{seed}", seed=seed, **short)

    try:
        alone = [train(config("alone", seed)) for seed in (0, 1)]
        together = train_together([config("together", seed) for seed in (0, 1)])
    finally:
        torch.set_num_threads(1)
    for one, other in zip(alone, together, strict=True):
        assert_same(one, other)


def test_a_run_that_fails_does_not_end_the_others(tmp_path: Path) -> None:
    good, bad = tiny(tmp_path / "good"), tiny(tmp_path / "bad", "toy:make_broken", seed=1)
    with pytest.raises(SveaError, match="the toy broke"):
        train_together([bad, good])
    assert_same(train(tiny(tmp_path / "alone")), tmp_path / "good")
