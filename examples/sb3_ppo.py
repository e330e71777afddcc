"""Stable-Baselines3's own PPO on svea's environments, unchanged: vectorised, checked, evaluated.

    pip install '.[train]' stable-baselines3   # in a clone of svea
    python examples/sb3_ppo.py --steps 50000

The default of 256 steps only shows that it runs. `sb3_sac.py` adds SVEA to the library's SAC.
"""

from __future__ import annotations

import argparse

import gymnasium as gym
from stable_baselines3 import PPO
from stable_baselines3.common.env_checker import check_env
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import SubprocVecEnv

import svea.envs  # noqa: F401 (registers the ids)

TASK = "svea/cartpole_swingup-v0"


def main() -> None:
    """Train in mode train on several environments, and test in a mode never seen."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=256, help="decisions to train for")
    parser.add_argument("--envs", type=int, default=2)
    parser.add_argument("--episode-frames", type=int, default=1000, help="simulator steps each")
    parser.add_argument("--processes", action="store_true", help="environments in processes")
    options = parser.parse_args()

    # CnnPolicy takes (9, 84, 84) bytes as they are: channels first, three stacked RGB frames.
    settings = {"rendering": "fast", "episode_frames": options.episode_frames}
    check_env(gym.make(TASK, **settings))
    kind = {"vec_env_cls": SubprocVecEnv} if options.processes else {}
    train = make_vec_env(TASK, options.envs, seed=0, env_kwargs=settings, **kind)
    agent = PPO("CnnPolicy", train, n_steps=64, batch_size=64, n_epochs=2, seed=0, device="cpu")
    agent.learn(options.steps)
    train.close()
    for mode in ("train", "color_hard"):
        test = make_vec_env(TASK, 1, seed=1, env_kwargs=settings | {"mode": mode})
        mean, _ = evaluate_policy(agent, test, n_eval_episodes=1)
        print(f"{mode:12} {mean:7.1f}")
        test.close()


if __name__ == "__main__":  # SubprocVecEnv's processes import this file
    main()
