"""The arm: kinematics against MuJoCo's, published masses, and what the camera sees."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from svea.core.errors import UserError
from svea.envs import prepare_simulator

prepare_simulator()

import mujoco  # noqa: E402  (after the OpenGL backend is chosen)

from svea.envs.robot.task import JOINTS, MARK_AREA, WORKSPACE, build, joint_angles  # noqa: E402  # noqa: E402
from svea.envs.robot.worlds import CAMERA  # noqa: E402

POINTING_DOWN = np.diag([1.0, -1.0, -1.0])


@pytest.fixture(scope="module")
def physics():
    return build(cube=False)


def placed(physics, angles):
    """The simulator's data with the arm at these joint angles."""
    physics.data.qpos[:JOINTS] = angles
    mujoco.mj_kinematics(physics.model.ptr, physics.data.ptr)
    return physics.data.ptr


def test_inverse_kinematics_is_the_inverse_of_mujocos(physics):
    rng = np.random.default_rng(0)
    for x, y in rng.uniform(*WORKSPACE, (200, 2)):
        height = rng.uniform(0.0, 0.1)
        tool = placed(physics, joint_angles(x, y, height)).site("tool")
        np.testing.assert_allclose(tool.xpos, [x, y, height], atol=1e-12)
        np.testing.assert_allclose(tool.xmat.reshape(3, 3), POINTING_DOWN, atol=1e-12)


def test_the_workspace_is_inside_the_joint_limits(physics):
    limited = physics.model.jnt_limited[:JOINTS].astype(bool)
    low, high = physics.model.jnt_range[:JOINTS][limited].T
    corners = [(x, y) for x in WORKSPACE[:, 0] for y in WORKSPACE[:, 1]]
    angles = np.array([joint_angles(*corner) for corner in corners])[:, limited]
    assert (angles > low + 0.1).all() and (angles < high - 0.1).all()
    np.testing.assert_array_equal(high, [2.24, 2.57, 2.09])
    assert limited.tolist() == [False, True, False, True, False, True, False]


def test_the_training_camera_sees_every_mark_from_everywhere(physics):
    np.testing.assert_array_equal(physics.model.ptr.cam("view").pos, CAMERA)
    half = np.tan(np.radians(physics.model.ptr.cam("view").fovy[0]) / 2)
    for x, y in itertools.product(*WORKSPACE.T):
        physics.data.qpos[:JOINTS] = joint_angles(x, y)
        physics.forward()
        camera = physics.data.ptr.cam("view")
        for mark in itertools.product(*MARK_AREA.T):
            right, up, back = camera.xmat.reshape(3, 3).T @ (np.array([*mark, 0.0]) - camera.xpos)
            assert max(abs(right), abs(up)) < half * -back, (x, y, mark)


def test_a_point_out_of_reach_is_refused():
    with pytest.raises(UserError, match=r"cannot reach \(0.800, 0.000\)"):
        joint_angles(0.8, 0.0)


def test_home_and_masses_are_the_published_ones(physics):
    """Menagerie's home posture puts its pinch site at (0.45667, 0.00135, 0.43372) over the base."""
    home = [0.0, 0.26179939, 3.14159265, -2.26892803, 0.0, 0.95993109, 1.57079633]
    bracelet = placed(physics, home).body("bracelet_link")
    pinch = bracelet.xpos + bracelet.xmat.reshape(3, 3) @ [0.0, 0.0, -0.061525]
    base = physics.data.ptr.body("base_link").xpos
    np.testing.assert_allclose(pinch - base, [0.45667, 0.00135, 0.43372], atol=5e-6)
    model = physics.model.ptr
    links = [i for i in range(model.nbody) if model.body(i).name.endswith("_link")]
    assert model.body_mass[links].sum() == pytest.approx(8.1879)
    assert model.body("gripper").mass[0] == pytest.approx(0.902605)
    np.testing.assert_array_equal(np.abs(model.actuator_forcerange).max(1), [105] * 4 + [52] * 3)
