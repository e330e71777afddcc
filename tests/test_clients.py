"""Other libraries use the environments: their own checkers pass, and the examples train.

Stable-Baselines3 and TorchRL are not installed by `make setup`: their tests are skipped without
them. docs/environments.md says with which versions they were run.
"""

import re
import warnings

import gymnasium as gym
import numpy as np
import pytest
from example_files import run
from gymnasium.utils.env_checker import check_env

import svea.envs  # noqa: F401 (registers the ids)

SMALL = {"rendering": "fast", "image_size": 40, "episode_frames": 80}
SETTINGS = [
    ("svea/cartpole_swingup-v0", {"mode": "color_hard"}),
    ("svea/cartpole_swingup-v0", {"action_bins": 3}),
    ("svea/cartpole_swingup-v0", {"frame_stack": 1, "channels_last": True}),
    ("svea/robot_reach-v0", {"mode": "test", "episode_frames": 20}),
]


def needs(module: str, package: str) -> None:
    pytest.importorskip(module, reason=f"pip install {package} to run this")


@pytest.mark.parametrize(("name", "options"), SETTINGS)
def test_gymnasiums_checker_finds_nothing(name, options):
    env = gym.make(name, **SMALL | options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", ".*is different from the unwrapped version")
        check_env(env if "action_bins" in options else env.unwrapped, skip_render_check=True)
    again = gym.make(env.spec)  # what a spec promises
    assert (again.observation_space, again.action_space) == (
        env.observation_space,
        env.action_space,
    )
    env.close()
    again.close()


def test_vector_environments_play_the_same_in_one_process_and_in_several():
    printed = run("vector_envs.py", "--episode-frames", "80")
    sync, many = printed.splitlines()
    assert sync.startswith("sync   (2, 9, 84, 84) uint8") and many.startswith("async")
    assert sync.split()[1:] == many.split()[1:]
    worlds, returns = re.search(r"worlds \[(.*)\]  returns (.*), (.*)", sync).group(1, 2)
    assert len(set(worlds.split())) == 2 and float(returns) >= 0


@pytest.mark.parametrize(
    ("kind", "reset"),
    [*(("sync", reset) for reset in gym.vector.AutoresetMode),
     ("async", gym.vector.AutoresetMode.NEXT_STEP)],
)  # fmt: skip
def test_make_vec_keeps_episodes_whole(kind, reset):
    """Ten decisions each; what comes next depends on how the vector resets."""
    envs = gym.make_vec(
        "svea/cartpole_swingup-v0", num_envs=2, vectorization_mode=kind,
        vector_kwargs={"autoreset_mode": reset}, **SMALL,
    )  # fmt: skip
    envs.reset(seed=3)
    ends = [bool(np.all(envs.step(envs.action_space.sample())[3])) for _ in range(10)]
    envs.close()
    assert ends == [False] * 9 + [True]


def test_the_single_file_trains():
    few = ["--image-size", "40", "--num-steps", "64", "--total-timesteps", "256"]
    printed = run("single_file_ppo.py", *few, "--update-epochs", "1")
    assert re.findall(r"global_step=(\d+), value_loss=", printed) == ["128", "256"]
    returns = [float(value) for value in re.findall(r"episodic_return=(\S+)", printed)]
    assert len(returns) == 2 and all(0 <= value <= 1000 for value in returns)


@pytest.mark.parametrize(("name", "options"), SETTINGS)
def test_stable_baselines3s_checker_finds_nothing(name, options):
    needs("stable_baselines3", "stable-baselines3")
    from stable_baselines3.common.env_checker import check_env as check

    env = gym.make(name, **SMALL | options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check(env)
    env.close()


@pytest.mark.parametrize("processes", [[], ["--processes"]])
def test_stable_baselines3s_ppo_trains(processes):
    needs("stable_baselines3", "stable-baselines3")
    printed = run("sb3_ppo.py", "--steps", "128", "--episode-frames", "80", *processes)
    rows = dict(re.findall(r"^(\w+) +(\d+\.\d)$", printed, re.MULTILINE))
    assert list(rows) == ["train", "color_hard"]


@pytest.mark.parametrize(("name", "options"), SETTINGS)
def test_torchrls_checker_finds_nothing(name, options):
    needs("torchrl", "torchrl")
    from torchrl.envs import GymEnv, check_env_specs

    env = GymEnv(name, **SMALL | options)
    check_env_specs(env)
    assert env.rollout(1000)["next", "truncated"].flatten().tolist()[-2:] == [False, True]
    env.close()


def test_torchrls_sac_trains():
    needs("torchrl", "torchrl")
    printed = run("torchrl_sac.py", "--steps", "40", "--episode-frames", "80")
    assert len(re.findall(r"loss of Q \d", printed)) == 2
    rows = dict(re.findall(r"^(\w+) +(\d+\.\d)$", printed, re.MULTILINE))
    assert list(rows) == ["train", "color_hard"]
