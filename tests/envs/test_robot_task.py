"""The arm and its tasks: kinematics, control, rewards, success; solved, but not by chance."""

import itertools
import math

import numpy as np
import pytest
from robot_expert import expert_action

from svea.core.errors import UserError
from svea.envs import make_env, prepare_simulator

prepare_simulator()

import mujoco  # noqa: E402  (after the OpenGL backend is chosen)

from svea.envs.robot.task import (  # noqa: E402
    JOINTS,
    MARK_AREA,
    RADIUS,
    RULES,
    SPEEDS,
    TOOL_HEIGHT,
    WORKSPACE,
    joint_angles,
    load,
)
from svea.envs.robot.worlds import CAMERA  # noqa: E402

STEPS = 50
LEAST = {"reach": 0.99, "reach_moving": 0.95, "push": 0.90}  # of the scripted controller
MOST = {"reach": 0.05, "reach_moving": 0.05, "push": 0.02}  # of a random policy


class Game:
    """A task without pictures: dm_control's own loop around it."""

    def __init__(self, name):
        self.env = load(name)
        self.task, self.physics = self.env.task, self.env.physics
        self.data = self.physics.data.ptr

    def reset(self, seed):
        self.task._random = np.random.RandomState(seed)
        self.env.reset()
        return self

    def step(self, action):
        reward = self.env.step(np.asarray(action)).reward
        return reward, self.task.episode_info(self.physics)

    def play(self, seed, policy, steps=STEPS):
        """Rewards and infos of an episode."""
        self.reset(seed)
        rng = np.random.default_rng(seed)
        return zip(*(self.step(policy(self, rng, k)) for k in range(steps)), strict=True)

    @property
    def tool(self):
        return self.data.site("tool").xpos.copy()

    @property
    def mark(self):
        return self.data.mocap_pos[0, :2].copy()

    @property
    def tilt(self):
        """Degrees between the gripper and straight down."""
        turned = np.trace(np.diag([1.0, -1.0, -1.0]) @ self.data.site("tool").xmat.reshape(3, 3))
        return math.degrees(math.acos(np.clip((turned - 1) / 2, -1, 1)))


def cornering(game, rng, step):
    """Full speed into one corner for ten steps, then into another."""
    if step % 10 == 0:
        game.corner = rng.choice([-1.0, 1.0], 2)
    return game.corner


POLICIES = {
    "expert": lambda game, rng, step: expert_action(game.task, game.physics),
    "uniform": lambda game, rng, step: rng.uniform(-1, 1, 2),
    "extreme": lambda game, rng, step: rng.choice([-1.0, 1.0], 2),
    "cornering": cornering,
}


@pytest.fixture(scope="module")
def games():
    return {name: Game(name) for name in RULES}


@pytest.fixture(params=list(RULES))
def game(request, games):
    return games[request.param]


POINTING_DOWN = np.diag([1.0, -1.0, -1.0])


@pytest.fixture
def arm(games):
    return games["reach"].physics


def placed(arm, angles):
    """The simulator's data with the arm at these joint angles."""
    arm.data.qpos[:JOINTS] = angles
    mujoco.mj_kinematics(arm.model.ptr, arm.data.ptr)
    return arm.data.ptr


def test_inverse_kinematics_is_the_inverse_of_mujocos(arm):
    rng = np.random.default_rng(0)
    for x, y in rng.uniform(*WORKSPACE, (200, 2)):
        height = rng.uniform(0.0, 0.1)
        tool = placed(arm, joint_angles(x, y, height)).site("tool")
        np.testing.assert_allclose(tool.xpos, [x, y, height], atol=1e-12)
        np.testing.assert_allclose(tool.xmat.reshape(3, 3), POINTING_DOWN, atol=1e-12)


def test_the_workspace_is_inside_the_joint_limits(arm):
    limited = arm.model.jnt_limited[:JOINTS].astype(bool)
    low, high = arm.model.jnt_range[:JOINTS][limited].T
    corners = [(x, y) for x in WORKSPACE[:, 0] for y in WORKSPACE[:, 1]]
    angles = np.array([joint_angles(*corner) for corner in corners])[:, limited]
    assert (angles > low + 0.1).all() and (angles < high - 0.1).all()
    np.testing.assert_array_equal(high, [2.24, 2.57, 2.09])
    assert limited.tolist() == [False, True, False, True, False, True, False]


def test_the_training_camera_sees_every_mark_from_everywhere(arm):
    np.testing.assert_array_equal(arm.model.ptr.cam("view").pos, CAMERA)
    half = np.tan(np.radians(arm.model.ptr.cam("view").fovy[0]) / 2)
    for x, y in itertools.product(*WORKSPACE.T):
        arm.data.qpos[:JOINTS] = joint_angles(x, y)
        arm.forward()
        camera = arm.data.ptr.cam("view")
        for mark in itertools.product(*MARK_AREA.T):
            right, up, back = camera.xmat.reshape(3, 3).T @ (np.array([*mark, 0.0]) - camera.xpos)
            assert max(abs(right), abs(up)) < half * -back, (x, y, mark)


def test_a_point_out_of_reach_is_refused():
    with pytest.raises(UserError, match=r"cannot reach \(0.800, 0.000\)"):
        joint_angles(0.8, 0.0)


def test_home_and_masses_are_the_published_ones(arm):
    """Menagerie's home posture puts its pinch site at (0.45667, 0.00135, 0.43372) over the base."""
    home = [0.0, 0.26179939, 3.14159265, -2.26892803, 0.0, 0.95993109, 1.57079633]
    bracelet = placed(arm, home).body("bracelet_link")
    pinch = bracelet.xpos + bracelet.xmat.reshape(3, 3) @ [0.0, 0.0, -0.061525]
    base = arm.data.ptr.body("base_link").xpos
    np.testing.assert_allclose(pinch - base, [0.45667, 0.00135, 0.43372], atol=5e-6)
    model = arm.model.ptr
    links = [i for i in range(model.nbody) if model.body(i).name.endswith("_link")]
    assert model.body_mass[links].sum() == pytest.approx(8.1879)
    assert model.body("gripper").mass[0] == pytest.approx(0.902605)
    np.testing.assert_array_equal(np.abs(model.actuator_forcerange).max(1), [105] * 4 + [52] * 3)


def test_one_unit_of_action_is_five_centimetres(games):
    game = games["reach"].reset(1)
    start = game.tool
    game.step([0.8, -0.4])
    assert (np.abs(game.tool - start)[:2] < [0.04, 0.02]).all(), "about one decision behind"
    for _ in range(10):  # the arm settles
        game.step([0.0, 0.0])
    np.testing.assert_allclose(game.tool - start, [0.04, -0.02, 0.0], atol=2e-5)


@pytest.mark.parametrize("corner", [(-1, -1), (-1, 1), (1, -1), (1, 1)])
def test_the_gripper_stops_at_the_workspace(games, corner):
    game = games["reach"].reset(0)
    for _ in range(25):
        game.step(corner)
        assert (game.tool[:2] > WORKSPACE[0] - 0.003).all()
        assert (game.tool[:2] < WORKSPACE[1] + 0.003).all()
    limits = [WORKSPACE[(side + 1) // 2, axis] for axis, side in enumerate(corner)]
    np.testing.assert_allclose(game.tool[:2], limits, atol=1e-4)


def test_reward_is_minus_the_distance_and_success_a_share_of_steps_on_the_mark(game):
    seen = set()
    share = 0.25 if game.task._rules.cube else 0.5
    for policy in (POLICIES["expert"], POLICIES["uniform"]):
        game.reset(2)
        rng, inside = np.random.default_rng(0), 0
        for k in range(STEPS):
            reward, info = game.step(policy(game, rng, k))
            cube = game.task._rules.cube is not None
            place = game.data.body("cube").xpos[:2] if cube else game.tool[:2]
            distance = float(np.linalg.norm(place - game.mark))
            on_mark = distance <= RADIUS
            assert reward == pytest.approx(on_mark - distance, abs=1e-12)
            assert (
                info["distance"] == pytest.approx(distance) and info["in_success_state"] == on_mark
            )
            inside += on_mark
            assert info["success"] == (inside >= share * (k + 1))
            seen.add(on_mark)
    assert seen == {True, False}


@pytest.mark.parametrize("name", list(RULES))
def test_the_greatest_return_is_fifty_and_can_be_had(games, name):
    """With gripper or cube on the mark from the beginning, and keeping it there."""
    game = games[name].reset(0)
    if name == "push":
        game.physics.data.mocap_pos[0, :2] = game.data.body("cube").xpos[:2]
    else:
        game.task.command = game.mark
        game.physics.data.qpos[:JOINTS] = joint_angles(*game.mark)
        game.physics.forward()
    total = 0.0
    for _ in range(STEPS):
        action = expert_action(game.task, game.physics) if name == "reach_moving" else np.zeros(2)
        total += game.step(action)[0]
    assert (49.8 if name == "reach_moving" else 49.99) < total <= 50


def test_the_moving_mark_zigzags_at_one_speed(games):
    game = games["reach_moving"]
    speeds = []
    for seed in range(12):
        game.reset(seed)
        places = [game.mark]
        for _ in range(STEPS):
            game.step([0.0, 0.0])
            places.append(game.mark)
        places = np.array(places)
        assert (places >= MARK_AREA[0] - 1e-12).all() and (places <= MARK_AREA[1] + 1e-12).all()
        moves = np.abs(np.diff(places, axis=0))
        speed = np.median(moves)
        speeds.append(speed)
        away = np.abs(places[:-1, :, None] - MARK_AREA.T[None]).min(2) > speed
        np.testing.assert_allclose(moves[away], speed, atol=1e-12)  # but where it turns round
    assert SPEEDS[0] <= min(speeds) < 0.0018 and 0.0032 < max(speeds) <= SPEEDS[1]


def test_episodes_begin_apart_and_differ(game):
    seen = []
    for seed in range(20):
        game.reset(seed)
        info = game.task.episode_info(game.physics)
        assert info["distance"] > RADIUS and not info["success"]
        seen.append((*game.tool[:2], *game.mark))
    assert np.ptp(np.array(seen), axis=0).min() > 0.008


def check_bounds(game, policy, seed):
    """The gripper keeps height and orientation, and the arm stays out of the table."""
    model, table = game.physics.model.ptr, game.physics.model.ptr.geom("table").id
    arm = [g for g in range(model.ngeom) if model.geom_contype[g] == 2]
    game.reset(seed)
    rng = np.random.default_rng(seed)
    for k in range(STEPS):
        game.step(policy(game, rng, k))
        assert abs(game.tool[2] - TOOL_HEIGHT) < 0.005 and game.tilt < 5
        if k % 10 == 0:
            gaps = [mujoco.mj_geomDistance(model, game.data, g, table, 0.5, None) for g in arm]
            assert min(gaps) > 0.01
    assert not any(warning.number for warning in game.data.warning)


@pytest.mark.parametrize("policy", ["uniform", "extreme", "cornering"])
@pytest.mark.parametrize("episodes", [2, pytest.param(100, marks=pytest.mark.slow)])
def test_physics_is_stable(game, policy, episodes):
    for seed in range(episodes):  # benchmarks/robot.py plays a thousand
        check_bounds(game, POLICIES[policy], seed)


@pytest.mark.parametrize("episodes", [6, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", list(RULES))
def test_a_controller_that_sees_the_state_solves_it_and_chance_does_not(games, name, episodes):
    def successes(policy):
        ends = (list(games[name].play(k, POLICIES[policy]))[1][-1] for k in range(episodes))
        return np.mean([end["success"] for end in ends])

    assert successes("expert") >= (LEAST[name] if episodes > 6 else 5 / 6)
    assert successes("uniform") < MOST[name]


def test_an_episode_says_when_the_cube_has_left_the_table(games):
    game = games["push"].reset(0)
    assert game.step([0.0, 0.0])[1]["off_table"] is False
    game.physics.data.qpos[JOINTS : JOINTS + 3] = [1.5, 0.0, 0.04]  # beyond the edge
    for _ in range(4):
        reward, info = game.step([0.0, 0.0])
    assert info["off_table"] is True and not info["success"] and reward < -0.5


def test_an_episode_has_fifty_steps_and_two_actions():
    env = make_env("robot_push", image_size=16, rendering="fast")
    env.reset(seed=0)
    assert env.action_space.shape == (2,) and env.metadata["render_fps"] == 25
    ends = [env.step(np.zeros(2, np.float32))[2:4] for _ in range(STEPS)]
    assert ends == [(False, False)] * 49 + [(False, True)]
    env.close()


@pytest.mark.parametrize("task", ["robot_reach", "robot_push"])
def test_joints_and_a_second_camera_stand_beside_the_papers_picture(task):
    """Which is the same; worlds change what both cameras see, and never the joints."""
    shown = {}
    for mode in ("train", "test:7"):
        plain, both = (
            make_env(task, mode, image_size=32, observation=what)
            for what in ("pictures", "pictures+gripper+joints")
        )
        pictures, parts = plain.reset(seed=4)[0], both.reset(seed=4)[0]
        for _ in range(3):
            np.testing.assert_array_equal(parts["view"], pictures)
            data = both.unwrapped.physics.data
            joints = np.concatenate([data.qpos[:JOINTS], data.qvel[:JOINTS]])
            np.testing.assert_array_equal(parts["joints"], joints.astype(np.float32))
            assert parts["gripper"].shape == (9, 32, 32)
            assert both.observation_space.contains(parts)
            pictures, parts = (env.step(np.array([1.0, -0.5]))[0] for env in (plain, both))
        shown[mode] = parts
        plain.close(), both.close()
    train, test = shown.values()
    np.testing.assert_array_equal(train["joints"], test["joints"])
    assert (train["gripper"] != test["gripper"]).mean() > 0.5


def test_other_tasks_show_pictures_alone():
    with pytest.raises(UserError, match="observation"):
        make_env("walker_walk", observation="pictures+joints")
    with pytest.raises(UserError, match=r"pictures\+gripper"):
        make_env("robot_reach", observation="gripper")
