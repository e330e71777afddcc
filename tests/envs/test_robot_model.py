"""The arm: kinematics against MuJoCo's and Menagerie's, and drawing that leaves physics alone."""

from __future__ import annotations

import itertools
import os
import sys
import tarfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from svea.core.errors import UserError
from svea.envs import make_env, prepare_simulator

prepare_simulator()

import mujoco  # noqa: E402  (after the OpenGL backend is chosen)

from svea.envs.robot.model import JOINTS, build, find_meshes, joint_angles  # noqa: E402
from svea.envs.robot.task import MARK_AREA, WORKSPACE  # noqa: E402
from svea.envs.robot.worlds import CAMERA  # noqa: E402

SMALL = {"image_size": 16, "rendering": "fast"}
POINTING_DOWN = np.diag([1.0, -1.0, -1.0])


@pytest.fixture(scope="module")
def physics():
    return build(cube=False)


@pytest.fixture(scope="module")
def menagerie(tmp_path_factory):
    """A folder of MuJoCo Menagerie, from a variable or from the data's archive."""
    if named := os.environ.get("SVEA_MENAGERIE"):
        return Path(named)
    archive = Path(os.environ.get("SVEA_DATA", "")) / "menagerie.tar.xz"
    if "SVEA_DATA" not in os.environ or not archive.is_file():
        pytest.skip("needs SVEA_MENAGERIE, or SVEA_DATA with menagerie.tar.xz")
    folder = tmp_path_factory.mktemp("menagerie")
    with tarfile.open(archive) as file:
        file.extractall(folder, filter="data")
    return folder


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


def test_links_are_those_of_menagerie(physics, menagerie):
    theirs = mujoco.MjModel.from_xml_path(str(menagerie / "kinova_gen3" / "gen3.xml"))
    for index in range(1, theirs.nbody):
        their, our = theirs.body(index), physics.model.ptr.body(theirs.body(index).name)
        for field in ("mass", "inertia", "ipos", "iquat", "quat"):
            np.testing.assert_allclose(getattr(our, field), getattr(their, field), atol=1e-9)
        if index > 1:  # the base stands on a pedestal
            np.testing.assert_array_equal(our.pos, their.pos)
    np.testing.assert_array_equal(physics.model.jnt_range[:JOINTS], theirs.jnt_range)


@pytest.mark.parametrize("task", ["robot_push", "robot_reach"])
def test_meshes_change_pictures_and_no_physics(menagerie, task):
    """Equal gripper trajectories, bit for bit, with the same actions."""
    envs = [make_env(task, menagerie=given, image_size=48) for given in (None, menagerie)]
    pictures = [env.reset(seed=3)[0].astype(int) for env in envs]
    assert np.abs(pictures[0] - pictures[1]).mean() > 0.2
    rng = np.random.default_rng(0)
    for _ in range(8):
        action = rng.uniform(-1, 1, 2).astype(np.float32)
        rewards = [env.step(action)[1] for env in envs]
        states = [env.unwrapped._physics.get_state() for env in envs]
        tools = [env.unwrapped._physics.data.ptr.site("tool").xpos for env in envs]
        np.testing.assert_array_equal(states[0], states[1])
        np.testing.assert_array_equal(tools[0], tools[1])
        assert rewards[0] == rewards[1]
    assert envs[1].unwrapped.provenance["arm"] == "menagerie"
    for env in envs:
        env.close()


def test_a_folder_without_the_models_is_named(tmp_path):
    with pytest.raises(UserError, match=r"gen3\.xml is not there.*kinova_gen3 and robotiq_2f85"):
        make_env("robot_reach", menagerie=tmp_path, **SMALL)


def test_auto_takes_the_variable_then_the_download(monkeypatch, tmp_path):
    names = ["kinova_gen3/gen3.xml", "robotiq_2f85/2f85.xml"]
    for name in names:
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    monkeypatch.setenv("SVEA_MENAGERIE", str(tmp_path))
    assert list(find_meshes("auto")) == [tmp_path / name for name in names]
    assert find_meshes(tmp_path) == find_meshes("auto")

    monkeypatch.delenv("SVEA_MENAGERIE")
    monkeypatch.setitem(sys.modules, "mujoco_menagerie", None)  # not installed
    with pytest.raises(UserError, match="pip install mujoco-menagerie"):
        find_meshes("auto")

    downloaded = [False]
    package = SimpleNamespace(
        get=lambda name: SimpleNamespace(path=lambda: tmp_path / name),
        Cache=lambda: SimpleNamespace(is_cached=lambda robot: downloaded[0]),
    )
    monkeypatch.setitem(sys.modules, "mujoco_menagerie", package)
    with pytest.raises(UserError, match="mujoco-menagerie prefetch kinova_gen3 robotiq_2f85"):
        find_meshes("auto")
    downloaded[0] = True
    assert list(find_meshes("auto")) == [tmp_path / name for name in names]
