"""An episode tells which of its mode's worlds it shows."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import numpy as np
import pytest

from svea.core.errors import UserError
from svea.envs import make_env


def worlds(mode: str, seeds: Iterable[int | None]) -> list[int | str]:
    env = make_env("cartpole_swingup", mode, image_size=16, rendering="fast")
    shown: list[int | str] = []
    for seed in seeds:
        _, first = env.reset(seed=seed)
        *_, later = env.step(np.zeros(1, np.float32))
        assert first["world"] == later["world"]
        shown.append(later["world"])
    env.close()
    return shown


@pytest.mark.parametrize(
    ("mode", "count"),
    [
        *(("color_hard", 100), ("video_easy", 10), ("distracting_cs:0.1", 4)),
        *(("rotate_shift_hard", 100), ("light_position_easy", 8), ("light_color_hard", 100)),
    ],
)
def test_the_world_follows_from_the_seed(mode: str, count: int) -> None:
    """World s modulo their number: so an evaluation can show them in turn."""
    seeds = [0, 1, count - 1, count, 3 * count + 1, 2**31 + count + 1]
    named = [s % count for s in seeds]
    prefix = "procedural " if "video" in mode or "distracting" in mode else ""
    assert [str(world) for world in worlds(mode, seeds)] == [f"{prefix}{n}" for n in named]


@pytest.mark.parametrize("mode", ["color_hard", "video_easy", "distracting_cs:0.1", "rotate_hard"])
def test_a_reset_without_a_seed_draws_a_world(mode: str) -> None:
    drawn = worlds(mode, [5, *[None] * 30])[1:]
    assert drawn == worlds(mode, [5, *[None] * 30])[1:]
    steps = {int(str(b).split()[-1]) - int(str(a).split()[-1]) for a, b in pairwise(drawn)}
    assert len(set(drawn)) > 2 and len(steps) > 3, "not in turn"


def test_a_world_can_be_asked_for() -> None:
    env = make_env("cartpole_swingup", "video_easy", image_size=16, rendering="fast")
    for wanted in (7, "procedural 7"):
        assert env.reset(seed=0, options={"world": wanted})[1]["world"] == "procedural 7"
    assert env.reset(seed=12)[1]["world"] == "procedural 2", "for one episode only"
    for wrong in (10, -1, True, "video7", 1.0):
        with pytest.raises(UserError, match="0 to 9"):
            env.reset(options={"world": wrong})
    env.close()
