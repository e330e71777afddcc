"""Evaluations during training show the same worlds each time, taken from all of them."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

from svea.config import configure
from svea.seeds import world_order
from svea.training import evaluators


def test_curves_see_an_even_subset_of_the_worlds(monkeypatch: pytest.MonkeyPatch) -> None:
    def do_nothing(*_: Any) -> Any:
        return lambda observations, episodes: np.zeros((len(observations), 1), np.float32)

    monkeypatch.setattr(evaluators, "agent_policy", do_nothing)
    shown = []
    for seed, environments in ((0, 2), (4, 1)):
        config = configure(
            "cartpole_swingup", preset="quick", seed=seed, image_size=48, episode_frames=8,
            eval_mode="color_hard", eval_episodes=5, eval_envs=environments,
        )  # fmt: skip
        with ExitStack() as stack:
            sets = evaluators.Evaluators(config, stack, print)
            for _ in range(2):
                line = sets.play("color_hard", None, lambda: False, print)  # type: ignore[arg-type]
                shown.append(line["worlds"])
                assert len(line["returns"]) == line["episodes"] == 5
            assert "worlds" not in sets.play("train", None, lambda: False, print)  # type: ignore[arg-type]
    assert shown == [world_order(100)[::20]] * 4
