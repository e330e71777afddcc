"""Cameras and lights, moved, turned or coloured, against second derivations."""

import itertools
from typing import Any
from unittest.mock import Mock

import mujoco
import numpy as np
import pytest
from scipy.spatial.transform import Rotation
from suite_models import undisturbed

from svea.config.modes import SHIFT_DOMAINS
from svea.envs import PAPER_TASKS, make_env
from svea.envs.looks import lights
from svea.envs.looks.cameras import SHIFT_LIMITS, CameraMode, camera_offsets

SMALL = {"image_size": 16, "rendering": "fast"}
TASKS = (*PAPER_TASKS, "cheetah_run")

# DMC-GB2's limits in degrees, written out for easy and hard: least and most about y, about x.
LIMITS = {
    ("walker", "hard"): (-10, 10, -10, 10),
    ("walker", "easy"): (-20 / 3, 20 / 3, -20 / 3, 20 / 3),
    ("cheetah", "hard"): (-10, 10, -10, 10),
    ("cheetah", "easy"): (-20 / 3, 20 / 3, -20 / 3, 20 / 3),
    ("cartpole", "hard"): (-8, 8, -10, 10),
    ("cartpole", "easy"): (-16 / 3, 16 / 3, -20 / 3, 20 / 3),
    ("finger", "hard"): (-6, 6, -6, 12),
    ("finger", "easy"): (-4, 4, -4, 8),
    ("ball", "hard"): (-6, 6, -6, 12),
    ("ball", "easy"): (-4, 4, -4, 8),
}


def angle(world: int, level: str) -> float:
    """The angle of one pose, one at a time."""
    return {"easy": -90 + 1.8 * world, "hard": -180 + 3.6 * world}[level]


def border(world: int, domain: str, level: str) -> tuple[float, float]:
    """Where a walk around the rectangle is after `world` of its 100 steps."""
    left, right, low, high = LIMITS[domain, level]
    side, step = divmod(world, 25)
    way = step / 25
    return [
        (left + way * (right - left), low),
        (right, low + way * (high - low)),
        (right - way * (right - left), high),
        (left, high - way * (high - low)),
    ][side]


def turn(world: int, mode: str, domain: str) -> np.ndarray:
    """The matrix that the camera's axes are multiplied with, by another library."""
    kind, _, level = mode.rpartition("_")
    about_y, about_x = border(world, domain, level) if "shift" in kind else (0.0, 0.0)
    about_z = angle(world, level) if "rotate" in kind else 0.0
    return Rotation.from_euler("YXZ", [about_y, about_x, about_z], degrees=True).as_matrix()


def camera_of(data: Any) -> tuple[np.ndarray, np.ndarray]:
    """Place and axes."""
    return data.cam_xpos[0].copy(), data.cam_xmat[0].reshape(3, 3).copy()


def poses(mode: str, domain: str) -> np.ndarray:
    """The mode's own, without a simulator."""
    look = CameraMode(mode)
    look.prepare(None, domain)
    return look.turns


def walk(env: Any, decisions: int) -> None:
    for _ in range(decisions):
        env.step(env.action_space.high)


@pytest.mark.parametrize("task", TASKS)
def test_the_camera_is_turned_as_dmcgb2_defines_it(task: str) -> None:
    domain = task.partition("_")[0]
    env = make_env(task, "rotate_shift_hard", **SMALL)
    for world in (0, 33, 75, 99):
        _, info = env.reset(seed=300 + world)
        assert info["world"] == world
        expected = turn(world, "rotate_shift_hard", domain)
        for _ in range(2):
            place, axes = camera_of(undisturbed(env))
            shown_place, shown_axes = camera_of(env.unwrapped._scene.data)
            np.testing.assert_allclose(shown_axes, axes @ expected, atol=1e-12)
            np.testing.assert_array_equal(shown_place, place)
            walk(env, 2)
    env.close()


@pytest.mark.parametrize("domain", list(SHIFT_LIMITS))
@pytest.mark.parametrize("level", ["easy", "hard"])
@pytest.mark.parametrize("kind", ["rotate", "shift", "rotate_shift"])
def test_all_hundred_poses_of_every_domain(domain: str, kind: str, level: str) -> None:
    mode = f"{kind}_{level}"
    expected = [turn(world, mode, domain.partition("_")[0]) for world in range(100)]
    np.testing.assert_allclose(poses(mode, domain), expected, atol=1e-12)


def test_dmcgb2_pairs_angle_and_border_whatever_the_seed() -> None:
    """Two lists of one length, shuffled by two generators of one seed, keep their pairs."""
    for seed in range(5):
        one, other = list(range(100)), [f"pose {k}" for k in range(100)]
        np.random.RandomState(seed).shuffle(one)
        np.random.RandomState(seed).shuffle(other)
        assert other == [f"pose {k}" for k in one]


def test_unpaired_has_the_same_angles_and_poses_in_other_company() -> None:
    both, rotations, shifts = (
        poses(f"{kind}_hard", "walker") for kind in ("rotate_shift_unpaired", "rotate", "shift")
    )
    # What is left of the product when the k-th rotation is taken away is a pose of the border.
    left = both @ rotations.transpose(0, 2, 1)
    apart = np.abs(left[:, None] - shifts[None]).max(axis=(2, 3))
    partners = apart.argmin(axis=1)
    assert (apart.min(axis=1) < 1e-12).all() and sorted(partners) == list(range(100))
    assert np.mean(partners == np.arange(100)) < 0.1
    assert abs(np.corrcoef(partners, np.arange(100))[0, 1]) < 0.25, "no order is left"


def test_the_picture_turns_about_its_centre() -> None:
    """-180, -90, 0 and 90 degrees: a camera that turns one way turns its picture the other."""
    plain, turned = (make_env("walker_walk", mode) for mode in ("train", "rotate_hard"))
    for world, quarters in ((0, 2), (25, 1), (50, 0), (75, 3)):
        expected = np.rot90(plain.reset(seed=world)[0], quarters, axes=(1, 2)).astype(int)
        shown = turned.reset(seed=world)[0]
        assert np.abs(shown - expected).mean() < 2  # antialiasing and the shadow's edge
    for env in (plain, turned):
        env.close()


@pytest.mark.parametrize(
    ("task", "level", "most"), [("walker_walk", "easy", 0.08), ("finger_spin", "hard", 0.15)]
)
def test_the_camera_moves_and_still_follows(task: str, level: str, most: float) -> None:
    env = make_env(task, f"camera_{level}", **SMALL)
    for world in (0, 7, 99):
        env.reset(seed=world)
        for _ in range(3):
            place, axes = camera_of(undisturbed(env))
            shown_place, shown_axes = camera_of(env.unwrapped._scene.data)
            moved = shown_place - place
            np.testing.assert_allclose(moved, camera_offsets(level)[world], atol=1e-12)
            assert np.abs(moved).max() <= most
            np.testing.assert_array_equal(shown_axes, axes)
            walk(env, 3)
    env.close()


def test_offsets_fill_the_cube_evenly() -> None:
    offsets = camera_offsets("hard") / 0.15
    assert len({tuple(row) for row in offsets}) == 100
    assert np.abs(offsets.mean(axis=0)).max() < 0.2 and (np.abs(offsets).max(axis=0) > 0.9).all()
    np.testing.assert_allclose(offsets, camera_offsets("easy") / 0.08)


def test_there_are_limits_for_every_domain_that_has_the_shifts() -> None:
    assert tuple(SHIFT_LIMITS) == SHIFT_DOMAINS


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
def test_the_drift_turns_round_at_both_ends(level, speed, end, monkeypatch):
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
