"""An episode tells which of its mode's worlds it shows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from svea.envs import make_env


def worlds(mode: str, seeds: range) -> list[int]:
    env = make_env("cartpole_swingup", mode, image_size=16, rendering="fast")
    shown = []
    for seed in seeds:
        _, first = env.reset(seed=seed)
        *_, later = env.step(np.zeros(1, np.float32))
        assert first["world"] == later["world"]
        shown.append(later["world"])
    env.close()
    return shown


@pytest.mark.parametrize(
    ("mode", "count"), [("color_hard", 100), ("video_easy", 10), ("distracting_cs:0.1", 4)]
)
def test_the_world_follows_from_the_seed(mode: str, count: int) -> None:
    first = worlds(mode, range(8))
    assert first == worlds(mode, range(8))
    assert len(set(first)) > 1 and all(0 <= world < count for world in first)


def test_the_colour_setting_of_that_number_is_worn() -> None:
    env: Any = make_env("cartpole_swingup", "color_hard", image_size=16, rendering="fast")
    _, info = env.reset(seed=3)
    model, mode = env.unwrapped._scene.model, env.unwrapped._mode
    worn = model.mat_rgba[model.mat("self").id, :3]
    np.testing.assert_allclose(worn, mode.settings[info["world"]]["self_rgb"], atol=1e-6)
    env.close()


def test_training_has_one_world_and_does_not_number_it() -> None:
    env = make_env("cartpole_swingup", image_size=16, rendering="fast")
    assert "world" not in env.reset(seed=0)[1]
    env.close()
