"""Train an agent of another library on svea's environments, then test it in every mode.

The environments are plain Gymnasium and need nothing else of svea:

    pip install svea stable-baselines3
    python examples/sb3_sac.py --steps 300

Some hundred steps teach a cart nothing; more steps do. What the modes are is told in
docs/environments.md.
"""

from __future__ import annotations

import argparse

import gymnasium as gym
from stable_baselines3 import SAC
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor

import svea.envs

TASK = "svea/cartpole_swingup-v0"


def main() -> None:
    """Train in the training look and print the mean return in every mode."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=300, help="decisions to train for")
    parser.add_argument("--episodes", type=int, default=1, help="test episodes in every mode")
    parser.add_argument("--episode-frames", type=int, default=1000, help="simulator steps each")
    options = parser.parse_args()

    # Rendering "fast" leaves out shadows and reflections; it is several times faster on a CPU.
    settings = {"rendering": "fast", "episode_frames": options.episode_frames}
    train = gym.make(TASK, **settings)
    agent = SAC(
        "CnnPolicy",
        train,
        learning_starts=20,
        batch_size=32,
        buffer_size=max(1, options.steps),
        seed=0,
    )
    agent.learn(options.steps)
    train.close()

    print(f"mean return of {options.episodes} episodes after {options.steps} decisions:")
    for mode in svea.envs.MODES:
        test = Monitor(gym.make(TASK, mode=mode, **settings))
        mean, _ = evaluate_policy(agent, test, n_eval_episodes=options.episodes)
        print(f"{svea.envs.describe(test.unwrapped.provenance):35} {mean:7.1f}")
        test.close()


if __name__ == "__main__":
    main()
