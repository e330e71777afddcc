"""The simulator's own segmentation: what is foreground, and observations behind an oracle mask."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from svea.config import configure
from svea.core.errors import UserError
from svea.envs import describe, make_env

SIZE = 48


def played(task: str, mode: str = "train", **settings: Any) -> tuple[Any, np.ndarray]:
    """An environment after two decisions, and what it shows."""
    env = make_env(task, mode, image_size=SIZE, seed=3, **settings)
    env.reset(seed=3)
    for _ in range(2):
        seen, *_ = env.step(np.zeros(env.action_space.shape, np.float32))  # type: ignore[arg-type]
    return env.unwrapped, seen


@pytest.mark.parametrize(
    ("task", "kept"),
    [
        ("cartpole_swingup", {"cart", "pole_1"}),
        ("reacher_easy", {"target", "arm", "hand"}),
        ("robot_push", {"mark"}),
    ],
)
def test_the_foreground_is_what_rays_hit(task: str, kept: set[str]) -> None:
    """A second derivation without a renderer: a ray through the middle of every pixel."""
    import mujoco

    env, _ = played(task, rendering="fast")
    model, data = env.physics.model.ptr, env.physics.data.ptr
    reach = np.tan(np.radians(model.cam_fovy[0]) / 2)
    axis = ((np.arange(SIZE) + 0.5) / SIZE * 2 - 1) * reach
    visible = np.array([1, 1, 1, 0, 0, 0], np.uint8)  # groups that are drawn
    wanted, names, hit = np.zeros((SIZE, SIZE), bool), set(), np.zeros(1, np.int32)
    for row, up in enumerate(-axis):
        for column, right in enumerate(axis):
            ray = data.cam_xmat[0].reshape(3, 3) @ np.array([right, up, -1.0])
            mujoco.mj_ray(model, data, data.cam_xpos[0], ray, visible, True, -1, hit)
            geom = model.geom(int(hit[0])) if hit[0] >= 0 else None
            flat = geom is None or geom.type[0] == mujoco.mjtGeom.mjGEOM_PLANE
            table = geom is not None and geom.bodyid[0] == 0 and geom.type[0] == 6  # a box
            wanted[row, column] = not (flat or table)
            names |= {geom.name} if wanted[row, column] and geom is not None else set()
    assert kept <= names and 0 < wanted.mean() < 0.3
    differing = env.foreground() != wanted
    assert differing.mean() < 0.005, "but for pixels on an edge"
    env.close()


@pytest.mark.parametrize("rendering", ["full", "fast"])
@pytest.mark.parametrize("mode", ["train", "video_hard", "rotate_hard"])
def test_behind_the_mask_the_task_alone_shows(mode: str, rendering: str) -> None:
    env, plain = played("walker_walk", mode, rendering=rendering)
    masked_env, masked = played("walker_walk", mode, rendering=rendering, oracle_mask=True)
    foreground = env.foreground()
    assert 0.01 < foreground.mean() < 0.3
    np.testing.assert_array_equal(masked[-3:], plain[-3:] * foreground)
    np.testing.assert_array_equal(foreground, masked_env.foreground())
    assert (plain[-3:][:, ~foreground] > 0).mean() > 0.5, "around it there was something"
    again, *_ = env.step(np.zeros(6, np.float32))
    fresh, _ = played("walker_walk", mode, rendering=rendering)
    np.testing.assert_array_equal(fresh.step(np.zeros(6, np.float32))[0], again), "no trace is left"
    for each in (env, masked_env, fresh):
        each.close()


def test_a_robots_table_is_background_and_its_mark_and_cube_are_not() -> None:
    env, seen = played("robot_push", rendering="fast")
    picture = seen[-3:].astype(int)
    red = (picture[0] > 150) & (picture[1:].max(0) < 90)
    assert red.sum() > 2 and env.foreground()[red].mean() > 0.6
    assert env.foreground().mean() < 0.25, "the table fills half of the picture"
    env.close()


def test_pictures_for_people_are_masked_too_and_the_provenance_says_so() -> None:
    env, _ = played("cartpole_swingup", render_mode="rgb_array", render_size=64, oracle_mask=True)
    picture = env.render()
    assert picture.shape == (64, 64, 3) and (picture == 0).all(-1).mean() > 0.8
    assert env.provenance["mask"] == "oracle"
    assert describe(env.provenance) == "train behind an oracle mask"
    env.close()


def test_an_environment_of_ones_own_has_no_segmentation() -> None:
    with pytest.raises(UserError, match=r"oracle_mask is on.*Allowed: tasks that svea simulates"):
        make_env("toy:make", image_size=16, oracle_mask=True)
    with pytest.raises(UserError, match=r"mask is oracle, but toy:make.*allowed: none, madi"):
        configure("toy:make", mask="oracle")


def test_the_method_masks_training_and_every_test_mode() -> None:
    config = configure("walker_walk", method="oracle_mask")
    assert config.environment["oracle_mask"] and config.environment_in("video_hard")["oracle_mask"]
    assert "oracle_mask" not in configure("walker_walk").environment
