"""The simulator's own segmentation: which pixels show what the task is about."""

from typing import Any

import numpy as np
import pytest

from svea.envs import make_env

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


@pytest.mark.parametrize(
    ("mode", "rendering"), [("train", "fast"), ("video_hard", "full"), ("rotate_hard", "fast")]
)
def test_asking_for_the_foreground_leaves_no_trace(mode: str, rendering: str) -> None:
    env, plain = played("walker_walk", mode, rendering=rendering)
    foreground = env.foreground()
    assert 0.01 < foreground.mean() < 0.3
    assert (plain[-3:][:, ~foreground] > 0).mean() > 0.5, "around it there is something"
    again, *_ = env.step(np.zeros(6, np.float32))
    fresh, _ = played("walker_walk", mode, rendering=rendering)
    np.testing.assert_array_equal(fresh.step(np.zeros(6, np.float32))[0], again)
    for each in (env, fresh):
        each.close()
