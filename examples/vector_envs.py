"""Gymnasium's own vector environments, in one process and in several: nothing else is needed.

    pip install .                              # in a clone of svea; no torch
    python examples/vector_envs.py
    python examples/vector_envs.py --envs 8 --mode video_hard

Every environment has its own seed, and so its own world.
"""

from __future__ import annotations

import argparse

import gymnasium as gym
import numpy as np

import svea.envs  # registers the ids


def play(kind: str, options: argparse.Namespace) -> None:
    """Play one episode of random actions in every environment, and print what they returned."""
    envs = gym.make_vec(
        options.id,
        num_envs=options.envs,
        vectorization_mode=kind,
        mode=options.mode,
        rendering="fast",
        episode_frames=options.episode_frames,
    )
    envs.action_space.seed(0)
    observations, info = envs.reset(seed=0)  # environment k gets seed k
    worlds = info.get("world", np.zeros(options.envs, int))
    returns, running = np.zeros(options.envs), np.ones(options.envs, bool)
    while running.any():
        observations, rewards, terminated, truncated, _ = envs.step(envs.action_space.sample())
        returns += running * rewards
        running &= ~(terminated | truncated)
    envs.close()
    shown, numbers = observations.shape, ", ".join(f"{value:.1f}" for value in returns)
    print(f"{kind:5}  {shown} {observations.dtype}  worlds {worlds}  returns {numbers}")


def main() -> None:
    """The same episodes, both ways."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--id", default="svea/cartpole_swingup-v0")
    parser.add_argument("--envs", type=int, default=2)
    parser.add_argument("--mode", default="color_hard", choices=svea.envs.MODES)
    parser.add_argument("--episode-frames", type=int, default=400, help="simulator steps each")
    options = parser.parse_args()
    for kind in ("sync", "async"):
        play(kind, options)


if __name__ == "__main__":  # async starts processes, which import this file
    main()
