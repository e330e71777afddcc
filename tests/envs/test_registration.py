"""Names, arguments and the errors for bad ones; numbered actions."""

import functools
import re
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Discrete
from toy import Toy

import svea.envs
from svea.core.errors import UserError
from svea.envs import make_env
from svea.envs.dmc import MOST_ACTIONS, DiscreteActions

CODE = "no function"


def make_nothing():
    return None


def make_twins(image_size, twin):
    return None


def test_import_loads_neither_torch_nor_the_simulator():
    code = f"import sys; sys.path[:] = {sys.path!r}; import svea.envs; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "mujoco", "dm_control"} & set(run.stdout.split())


@pytest.mark.parametrize(
    "arguments",
    [
        {"task": "waker_walk"},
        {"mode": "color_hrad"},
        {"rendering": "ful"},
        {"renderer": "mujoco"},
        {"image_size": 8},
        {"image_size": 84.0},
        {"image_size": True},
        {"seed": -1},
        {"task": "robot_reach", "action_repeat": 4},
        {"channels_last": "yes"},
        {"task": make_nothing},
        {"render_mode": "human"},
        {"intensity": 0.1},
        {"mode": "distracting_cs", "intensity": 0},
        {"mode": "distracting_cs", "intensity": float("nan")},
        {"mode": "distracting_cs", "intensity": "0.1"},
        {"mode": "distracting_cs:hard"},
        {"mode": "distractin_cs:0.1"},
        {"mode": "distracting_cs:0.1", "intensity": 0.2},
        {"mode": "video_easy:2"},
        {"mode": "video_easy", "task": "reacher_easy"},
        {"mode": "shift_easy", "task": "hopper_hop"},
        {"mode": "rotate_easy", "task": "robot_push"},
        {"task": "robot_reach", "mode": "test", "world": "7"},
        {"task": "robot_reach", "mode": "test:3", "world": 4},
        {"task": "robot_reach", "world": 4},
        {"mode": "lights"},
        {"mode": "video_easy", "order": "randm"},
        {"mode": "video_easy", "video": "x"},
        {"mode": "video_easy", "videos": "/no/such"},
        {"mode": "distracting_cs", "videos": "/no/such"},
        {"data_dir": "/no/such/folder"},
        {"task": "no.such.module:f"},
        {"task": f"{__name__}:no_function"},
        {"task": f"{__name__}:make_nothing"},
        {"task": "toy:make", "image_size": 8},
        {"task": f"{__name__}:make_twins"},
        {"task": ":make"},
        {"task": ".here:make"},
        {"task": f"{__name__}:CODE"},
        {"task": "toy:make", "mode": "color_easy"},
        {"action_bins": -1},
    ],
)
def test_bad_arguments_are_named_before_any_simulator_work(arguments, monkeypatch):
    monkeypatch.setattr(
        svea.envs.dmc, "prepare_simulator", lambda: pytest.fail("the simulator was loaded")
    )
    *_, (name, value) = arguments.items()
    named = value.__name__ if callable(value) else str(value).partition(":")[2] or str(value)
    with pytest.raises(UserError, match=f"{name}|{re.escape(named)}"):
        make_env(**{"task": "walker_walk", **arguments})


def test_an_own_environment_in_the_current_folder_gets_the_seed(monkeypatch, tmp_path):
    (tmp_path / "worlds_here.py").write_text("from toy import Toy as Here")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    assert make_env("worlds_here:Here", seed=5).unwrapped.first_seed == 5


SMALL = {"image_size": 16, "rendering": "fast"}


def test_environments_made_without_a_seed_differ():
    one = functools.partial(gym.make, "svea/cartpole_balance-v0", mode="color_hard", **SMALL)
    envs = gym.vector.SyncVectorEnv([one] * 3)
    shown = [envs.reset() for _ in range(3)]
    worlds = np.stack([info["world"] for _, info in shown], axis=1)  # of 100, in each environment
    assert len({tuple(row) for row in worlds}) == 3, "one in 10**6 by chance"
    first = shown[0][0]
    assert not (first[0] == first[1]).all() and not (first[1] == first[2]).all()
    envs.close()
    own = {make_env("toy:make").unwrapped.first_seed for _ in range(3)}
    assert len(own) == 3


@pytest.mark.parametrize(
    ("given", "steps"),
    [
        ({}, 125),
        ({"action_repeat": 4}, 250),
        ({"action_repeat": 300}, 4),
        ({"episode_frames": 24}, 3),
        ({"max_episode_steps": 7}, 7),
        ({"action_repeat": 4, "max_episode_steps": 7}, 7),
    ],
)
def test_the_spec_says_how_long_an_episode_is(given, steps):
    name = "svea/cartpole_balance-v0"
    assert gym.spec(name).max_episode_steps == 125
    env = gym.make(name, **SMALL, **given)
    assert env.spec.max_episode_steps == steps
    env.reset(seed=0)
    if steps < 10:
        ends = [env.step(env.action_space.sample())[3] for _ in range(steps)]
        assert ends == [False] * (steps - 1) + [True]
    env.close()
    again = gym.make(env.spec)
    assert again.spec.max_episode_steps == steps
    again.close()


@pytest.mark.parametrize("task", ["cartpole_balance", "toy:make"])
def test_frames_and_the_order_of_channels_can_be_chosen(task):
    shapes = ({}, {"frame_stack": 2, "channels_last": True}, {"frame_stack": 1})
    envs = usual, other, single = [make_env(task, **SMALL, **shape) for shape in shapes]
    assert other.observation_space.shape == (16, 16, 6)
    assert single.observation_space.shape == (3, 16, 16)
    seen = [env.reset(seed=3)[0] for env in envs]
    for _ in range(3):
        np.testing.assert_array_equal(seen[1].transpose(2, 0, 1), seen[0][3:])
        np.testing.assert_array_equal(seen[2], seen[0][6:])
        assert all(env.observation_space.contains(o) for env, o in zip(envs, seen, strict=True))
        seen = [env.step(usual.action_space.high)[0] for env in envs]
    for env in envs:
        env.close()


def test_states_are_there_and_pictures_only_when_they_are_asked_for():
    env = make_env("cartpole_balance", **SMALL)
    env.reset(seed=0)
    before = env.unwrapped.state()
    np.testing.assert_array_equal(before[:2], env.unwrapped.physics.data.qpos)
    env.step(env.action_space.high)
    assert not np.array_equal(before, env.unwrapped.state())
    with pytest.warns(UserWarning, match="render_mode"):
        assert env.render() is None
    env.close()


def test_an_unknown_option_is_a_type_error_in_pythons_words():
    """As other libraries expect: TorchRL tries `frameskip` and leaves it out after this message."""
    with pytest.raises(TypeError, match="unexpected keyword argument 'frameskip'"):
        gym.make("svea/cartpole_swingup-v0", frameskip=1)


@pytest.mark.parametrize(("bins", "dimensions"), [(2, 1), (3, 2), (4, 3), (2, 12), (4096, 1)])
def test_every_number_is_one_corner_of_a_grid(bins, dimensions):
    env = DiscreteActions(Toy(actions=dimensions), bins)
    assert env.action_space == Discrete(bins**dimensions)
    for number in {0, 1, bins**dimensions // 2, bins**dimensions - 1}:
        digits = [number // bins**place % bins for place in reversed(range(dimensions))]
        expected = [-1 + 2 * digit / (bins - 1) for digit in digits]
        np.testing.assert_allclose(env.action(number), expected, atol=1e-6)
        assert env.action(number).dtype == np.float32
    assert len({tuple(vector) for vector in env.vectors.tolist()}) == bins**dimensions


@pytest.mark.parametrize(("bins", "dimensions"), [(1, 1), (5, 6), (2, 13)])
def test_too_few_and_too_many_are_refused_with_the_number(bins, dimensions):
    with pytest.raises(UserError, match=f"{bins}.*{MOST_ACTIONS}"):
        DiscreteActions(Toy(actions=dimensions), bins)


def test_no_bins_for_what_is_already_discrete(examples_on_path):
    with pytest.raises(UserError, match="action_bins"):
        make_env("own_environment:make_discrete_catch", action_bins=3)


@pytest.mark.parametrize("action", [-1, 3, 0.5, float("nan"), [0, 1], []])
def test_numbers_out_of_range_are_refused(action):
    env = DiscreteActions(Toy(), 3)
    env.reset()
    with pytest.raises(UserError, match="0 to 2"):
        env.step(action)


def test_a_suite_task_with_numbered_actions_is_the_same_task():
    small = {"task": "cartpole_balance", "image_size": 16, "rendering": "fast"}
    plain, numbered = make_env(**small), make_env(**small, action_bins=5)
    assert numbered.action_space == Discrete(5)
    np.testing.assert_array_equal(plain.reset(seed=2)[0], numbered.reset(seed=2)[0])
    one, two = plain.step(np.array([0.5], np.float32)), numbered.step(3)
    np.testing.assert_array_equal(one[0], two[0])
    assert one[1:] == two[1:]
    plain.close()
    numbered.close()
