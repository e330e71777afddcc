"""SVEA in another library: a subclass of Stable-Baselines3's SAC, evaluated in every mode.

    pip install '.[train]' stable-baselines3   # in a clone of svea
    python examples/sb3_sac.py --steps 300
    python examples/sb3_sac.py --steps 300 --plain

The environments are plain Gymnasium and need nothing else from svea: `--plain` trains the library's
own SAC on them. A few hundred steps are too few to learn anything; use more. docs/environments.md
describes the modes.
"""

from __future__ import annotations

import argparse

import gymnasium as gym
import torch
from stable_baselines3 import SAC
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.utils import polyak_update
from torch import Tensor

import svea.envs
from svea.augment import conv, shift
from svea.recipes import RECIPES, RecipeOptions, streams
from svea.views import Views

TASK = "svea/cartpole_swingup-v0"


class SVEA(SAC):
    """SAC with SVEA's Q-loss; acting, storing and saving are the library's own.

    Policy and critic each have an encoder here, as is usual in this library.
    """

    streams = streams(RECIPES["svea"], RecipeOptions(alpha=0.5, beta=0.5))

    def views(self, observations: Tensor) -> Views:
        """The batch as stored, shifted, and shifted and convolved."""
        return Views(observations, lambda x: x, shift, conv)

    def train(self, gradient_steps: int, batch_size: int = 64) -> None:
        """Update Q-functions, policy, temperature and target, `gradient_steps` times."""
        self.policy.set_training_mode(True)
        self._update_learning_rate(
            [self.actor.optimizer, self.critic.optimizer, self.ent_coef_optimizer]
        )
        for _ in range(gradient_steps):
            batch = self.replay_buffer.sample(batch_size)
            now, later = self.views(batch.observations), self.views(batch.next_observations)
            loss = self.critic_loss(batch, now, later)
            self.descend(self.critic.optimizer, loss)

            seen = as_bytes(now.stack(self.streams.policy))
            actions, log_probability = self.actor.action_log_prob(seen)
            q = torch.cat(self.critic(seen, actions), dim=1).amin(1)
            temperature = self.log_ent_coef.exp()
            self.descend(self.actor.optimizer, (temperature.detach() * log_probability - q).mean())
            surplus = (log_probability + self.target_entropy).detach()
            self.descend(self.ent_coef_optimizer, -(self.log_ent_coef * surplus).mean())
            polyak_update(self.critic.parameters(), self.critic_target.parameters(), self.tau)
            self._n_updates += 1
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        self.logger.record("train/critic_loss", loss.item())

    def critic_loss(self, batch, now: Views, later: Views) -> Tensor:
        """SVEA's objective (Eq. 4 of the paper): errors weighted by stream, against one target."""
        with torch.no_grad():
            seen = as_bytes(later.stack(self.streams.target))
            actions, log_probability = self.actor.action_log_prob(seen)
            q = torch.cat(self.critic_target(seen, actions), dim=1).amin(1)
            value = q - self.log_ent_coef.exp() * log_probability
            target = batch.rewards[:, 0] + self.gamma * (1 - batch.dones[:, 0]) * value  # (B,)
        count = len(self.streams.prediction)
        seen = as_bytes(now.stack(self.streams.prediction))  # (V*B, 9, H, W)
        q = torch.cat(self.critic(seen, batch.actions.repeat(count, 1)), dim=1)  # (V*B, 2)
        errors = (q.T.unflatten(1, (count, -1)) - target).square().mean(2).sum(0)  # (V,)
        return errors @ torch.tensor(self.streams.weights, device=errors.device)

    @staticmethod
    def descend(optimiser: torch.optim.Optimizer, loss: Tensor) -> None:
        """One step down the gradient."""
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()


def as_bytes(pixels: Tensor) -> Tensor:
    """Undo the division by 255, which the library's networks do themselves."""
    return pixels * 255


def main() -> None:
    """Train in mode train, and print the mean return in every mode."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=300, help="decisions to train for")
    parser.add_argument("--episodes", type=int, default=1, help="test episodes in every mode")
    parser.add_argument("--episode-frames", type=int, default=1000, help="simulator steps each")
    parser.add_argument("--plain", action="store_true", help="the library's own SAC")
    options = parser.parse_args()

    # Rendering "fast" leaves out shadows and reflections; it is several times faster on a CPU.
    settings = {"rendering": "fast", "episode_frames": options.episode_frames}
    train = gym.make(TASK, **settings)
    agent = (SAC if options.plain else SVEA)(
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
