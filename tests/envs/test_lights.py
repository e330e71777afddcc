"""Lights that are moved or coloured, against second derivations of their definitions."""

from __future__ import annotations

import itertools
from typing import Any
from unittest.mock import Mock

import mujoco
import numpy as np
import pytest
from suite_models import undisturbed

from svea.envs import make_env
from svea.envs.looks import lights

SMALL = {"image_size": 16, "rendering": "fast"}
STEPS = {"easy": (3, 4), "hard": (9, 10)}


@pytest.mark.parametrize(
    ("task", "level"),
    [("walker_walk", "easy"), ("cartpole_swingup", "hard"), ("swimmer_swimmer6", "hard")],
)
def test_lights_move_to_each_of_eight_places(task: str, level: str) -> None:
    """A light that follows the agent, one that stands, and two at once."""
    env: Any = make_env(task, f"light_position_{level}", **SMALL)
    seen = []
    for world in range(8):
        assert env.reset(seed=world)[1]["world"] == world
        for _ in range(2):
            own, data = undisturbed(env), env.unwrapped._scene.data
            moved = data.light_xpos - own.light_xpos
            np.testing.assert_allclose(moved, moved[:1].repeat(len(moved), axis=0), atol=1e-12)
            np.testing.assert_array_equal(data.light_xdir, own.light_xdir)
            env.step(env.action_space.high)
        seen.append(tuple(moved[0].round(9)))
    assert sorted(seen) == sorted(itertools.product(STEPS[level], repeat=3))
    assert env.unwrapped.provenance["worlds"] == 8
    env.close()


@pytest.mark.parametrize("task", ["finger_spin", "ball_in_cup_catch"])
def test_a_directional_light_turns_instead(task: str) -> None:
    """It shone straight down at the origin; now it shines there from its new place."""
    env: Any = make_env(task, "light_position_easy", **SMALL)
    env.reset(seed=7)
    scene = env.unwrapped._scene
    assert scene.model.light_type[0] == mujoco.mjtLightType.mjLIGHT_DIRECTIONAL
    place = np.array([4.0, 4.0, 2 + 4.0])
    np.testing.assert_allclose(scene.data.light_xpos[0], place)
    np.testing.assert_allclose(scene.data.light_xdir[0], -place / np.linalg.norm(place))
    env.close()


def test_what_the_public_code_writes_moves_no_light_that_follows() -> None:
    """Why places are not written into the model."""
    env: Any = make_env("walker_walk", **SMALL)
    env.reset(seed=0)
    scene = env.unwrapped._scene
    before = scene.data.light_xpos.copy()
    scene.model.light_pos += 9
    mujoco.mj_forward(scene.model, scene.data)
    np.testing.assert_allclose(scene.data.light_xpos, before, atol=1e-9)
    env.close()


@pytest.mark.parametrize(("level", "most"), [("easy", 0.2), ("hard", 10.0)])
def test_each_world_has_its_colour_and_none_is_left_behind(level: str, most: float) -> None:
    env: Any = make_env("walker_walk", f"light_color_{level}", **SMALL)
    model = env.unwrapped._scene.model
    own = model.light_diffuse.copy()
    changes = []
    for world in (*range(30), 5):
        assert env.reset(seed=100 + world)[1]["world"] == world
        changes.append(model.light_diffuse[0] - own[0])
    np.testing.assert_array_equal(changes[-1], changes[5])
    assert len({tuple(change) for change in changes}) == 30
    assert 0.9 * most < np.abs(changes).max() <= most + 1e-6  # the model has float32
    assert np.abs(np.mean(changes)) < 0.2 * most, "to both sides"
    assert env.unwrapped.provenance["worlds"] == 100
    env.close()


@pytest.mark.parametrize(("level", "speed"), [("easy", 0.01), ("hard", 0.05)])
def test_a_light_drifts_by_decisions(level: str, speed: float) -> None:
    env: Any = make_env("walker_walk", f"moving_light_{level}", **SMALL)
    for _ in range(2):  # the second episode begins where the first did
        env.reset(seed=1)
        for decision in range(5):
            moved = env.unwrapped._scene.data.light_xpos - undisturbed(env).light_xpos
            np.testing.assert_allclose(moved, np.full((1, 3), decision * speed), atol=1e-12)
            env.step(env.action_space.high)
    assert "worlds" not in env.unwrapped.provenance
    env.close()


@pytest.mark.parametrize(("level", "speed", "end"), [("easy", 0.01, 5.0), ("hard", 0.05, 10.0)])
def test_the_drift_turns_round_at_both_ends(
    level: str, speed: float, end: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[np.ndarray] = []
    monkeypatch.setattr(lights, "move_lights", lambda scene, offset: shown.append(offset))
    mode, scene, rng = lights.MovingLight(f"moving_light_{level}"), Mock(), np.random.default_rng()
    mode.begin(scene, rng)
    place, direction = 0.0, 1
    for _ in range(2500):
        mode.update(scene)
        place += direction * speed
        if abs(place) >= end - 1e-9:
            direction = -direction
        assert np.abs(shown[-1] - [place] * 3).max() < 1e-6
