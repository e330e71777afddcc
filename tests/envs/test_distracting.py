"""The Distracting Control Suite: its table, its ranges, and when it moves."""

from itertools import pairwise

import numpy as np
import pytest
from small_media import picture

from svea.config.modes import INTENSITIES
from svea.core.errors import UserError
from svea.envs import make_env
from svea.envs.looks.distracting import (
    DAVIS,
    Camera,
    DistractingMode,
    clip_count,
    look_at,
    look_down_at,
    next_frame,
    to_cartesian,
    to_sphere,
)

SMALL = {"image_size": 32, "rendering": "fast"}


def test_the_number_of_clips_is_the_benchmarks():
    counts = {each: clip_count(each) for each in INTENSITIES}
    assert counts == {0.025: 2, 0.05: 2, 0.1: 4, 0.15: 6, 0.2: 8, 0.3: 60, 0.4: 60, 0.5: 60}
    assert len(DAVIS) == len(set(DAVIS)) == 60 and list(DAVIS) == sorted(DAVIS)


def test_the_video_goes_forwards_and_backwards():
    frame, direction, seen = 1, -1, []
    for _ in range(9):
        frame, direction = next_frame(frame, direction, 4)
        seen.append(frame)
    assert seen == [0, 1, 2, 3, 3, 2, 1, 0, 1]  # the last frame twice, as in the original


@pytest.mark.parametrize("turn", [look_at, look_down_at])
def test_cameras_look_where_they_should(turn):
    rng = np.random.default_rng(1)
    for forward in rng.normal([0, 0.5, -0.5], 0.5, (50, 3)):
        axes = turn(forward)
        np.testing.assert_allclose(axes @ axes.T, np.eye(3), atol=1e-9)
        assert np.linalg.det(axes) == pytest.approx(1)
        np.testing.assert_allclose(-axes[:, 2], forward / np.linalg.norm(forward), atol=1e-12)
        if turn is look_at:
            assert axes[2, 0] == 0 and axes[2, 1] >= 0  # level, and not upside down
    np.testing.assert_allclose(look_down_at(np.array([0, 0, -2.0])), np.eye(3), atol=1e-12)


@pytest.mark.parametrize("task", ["walker_walk", "cartpole_swingup", "reacher_easy"])
def test_without_displacement_the_cameras_are_the_models_own(task):
    """At a vanishing intensity the pose comes out as it went in, through all the geometry."""
    env = make_env(task, **SMALL).unwrapped
    env.reset(seed=0)
    scene = env._scene
    pose = [scene.data.cam_xpos[0].copy(), scene.data.cam_xmat[0].copy()]
    Camera(scene, 1e-9, np.random.default_rng(0)).place(scene)
    np.testing.assert_allclose(scene.data.cam_xpos[0], pose[0], atol=1e-6)
    np.testing.assert_allclose(scene.data.cam_xmat[0], pose[1], atol=1e-6)
    env.close()


@pytest.mark.parametrize(
    ("task", "intensity"), [("walker_walk", 0.5), ("cartpole_swingup", 1.0), ("reacher_easy", 0.1)]
)
def test_the_camera_fills_its_range_and_never_leaves_it(task, intensity):
    env = make_env(task, **SMALL).unwrapped
    env.reset(seed=0)
    scene, rng = env._scene, np.random.default_rng(0)
    centre = scene.data.subtree_com[1] if task == "walker_walk" else np.zeros(3)
    radius, side, height = to_sphere(scene.data.cam_xpos[0] - centre)
    angle = np.pi / 2 * intensity
    seen, speeds = [], []
    for _ in range(60):
        camera = Camera(scene, intensity, rng)
        for _ in range(20):
            before = to_cartesian(camera._sphere)
            camera.move(rng)
            seen.append([*camera._sphere, camera._roll])
            speeds.append(np.linalg.norm(to_cartesian(camera._sphere) - before))
    seen = np.array(seen)
    low = np.array([radius * (1 - 0.5 * intensity), side - angle, height - angle, -angle])
    high = np.array([radius * (1 + 1.5 * intensity), side + angle, height + angle, angle])
    if task != "reacher_easy":
        low[2], high[2] = max(low[2], 0), min(high[2], np.pi / 2)
    assert (seen >= low - 1e-9).all() and (seen <= high + 1e-9).all()
    covered = np.ptp(seen, axis=0) / (high - low)
    assert (covered[[0, 1, 3]] > 0.8).all() and covered[2] > 0.45  # reacher's pole has one side
    # A limit may turn a step aside, but never far beyond the top speed.
    assert np.quantile(speeds, 0.9) <= 0.4 * intensity * radius / 4 + 1e-9
    env.close()


def test_everything_moves_at_every_second_step_and_stays_at_odd_ones():
    env = make_env(
        "cartpole_balance", "distracting_cs", intensity=0.5, action_repeat=1, **SMALL
    ).unwrapped
    env.reset(seed=0)
    data, model, mode = env._scene.data, env._scene.model, env.mode
    own = np.array([0.0, -4.0, 1.0])
    poses, colors, frames = [], [], []
    for step in range(7):
        poses.append(data.cam_xpos[0].copy())
        colors.append(model.mat_rgba.copy())
        frames.append(mode._frame)
        assert np.linalg.norm(poses[-1] - own) > 0.01, f"the camera fell back at step {step}"
        env.step(np.zeros(1, np.float32))
    for seen in (poses, colors):
        same = [np.array_equal(a, b) for a, b in pairwise(seen)]
        assert same == [True, False, True, False, True, False]
    assert [abs(b - a) for a, b in pairwise(frames)] == [0, 1, 0, 1, 0, 1]
    env.close()


def test_colors_start_and_stay_within_their_box():
    env = make_env("walker_walk", "distracting_cs:0.2", **SMALL).unwrapped
    own = env._scene.model.mat_rgba[:, :3].copy()
    seen, steps = [], []
    for seed in range(12):
        env.reset(seed=seed)
        for _ in range(3):
            seen.append(env._scene.model.mat_rgba[:, :3] - own)
            env.step(env.action_space.high)
            steps.append(env._scene.model.mat_rgba[:, :3] - own - seen[-1])
    seen = np.array(seen)
    assert np.abs(seen).max() <= 0.2 + 1e-6 and seen.min() < -0.17 and seen.max() > 0.17
    inner = np.array(steps)[np.abs(seen) < 0.15]
    assert inner.std() == pytest.approx(0.03 * 0.2 * np.sqrt(2), rel=0.15)  # two moves a decision
    env.close()


@pytest.mark.parametrize(
    ("task", "alpha"), [("walker_walk", 1.0), ("reacher_easy", 0.0), ("finger_spin", 0.3)]
)
def test_floor_transparency(task, alpha):
    env = make_env(task, "distracting_cs", **SMALL).unwrapped
    env.reset(seed=0)
    model = env._scene.model
    assert model.mat_rgba[model.mat("grid").id, 3] == pytest.approx(alpha)
    env.close()


def test_provenance(tmp_path):
    provenance = DistractingMode(intensity=0.15).provenance
    assert provenance == {
        "mode": "distracting_cs",
        "worlds": 6,
        "intensity": 0.15,
        "source": "procedural",
        "clips": 6,
        "shown": "128 x 128",
        "version": 1,
    }
    with pytest.raises(UserError, match=r"bear\.mp4"):
        DistractingMode(intensity=0.15, data_dir=tmp_path)


def test_the_sky_has_what_the_picture_can_show(tmp_path):
    """84 pixels span 0.41 of a side: 53 pixels of 128 would be coarser than the picture."""
    for name in ("0.png", "1.png"):
        picture(tmp_path, f"clip/{name}", 854, 480)
    for videos, side in ((tmp_path, 256), ("procedural", 128)):
        env = make_env("walker_walk", "distracting_cs", videos=videos, **SMALL).unwrapped
        env.reset(seed=0)
        model = env._scene.model
        sky = model.tex("skybox").id
        assert (model.tex_width[sky], model.tex_height[sky]) == (side, side)
        assert env.provenance["shown"] == f"{side} x {side}"
        env.close()
