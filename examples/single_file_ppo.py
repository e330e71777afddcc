"""PPO from pixels in one file, in the manner of CleanRL: no framework, one loop.

    pip install '.[train]'                     # in a clone of svea
    python examples/single_file_ppo.py --total-timesteps 200000

It uses svea's environments and nothing else of svea. The default of 512 steps only shows that it
runs.
"""

from __future__ import annotations

import argparse

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Normal

import svea.envs  # noqa: F401 (registers the ids)


def parse() -> argparse.Namespace:
    """The settings, named as CleanRL names them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--env-id", default="svea/cartpole_swingup-v0")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--image-size", type=int, default=84)
    parser.add_argument("--total-timesteps", type=int, default=512)
    parser.add_argument("--learning-rate", type=float, default=3e-4)
    parser.add_argument("--num-envs", type=int, default=2)
    parser.add_argument("--num-steps", type=int, default=128)
    parser.add_argument("--num-minibatches", type=int, default=4)
    parser.add_argument("--update-epochs", type=int, default=4)
    parser.add_argument("--gamma", type=float, default=0.99)
    parser.add_argument("--gae-lambda", type=float, default=0.95)
    parser.add_argument("--clip-coef", type=float, default=0.2)
    parser.add_argument("--vf-coef", type=float, default=0.5)
    parser.add_argument("--max-grad-norm", type=float, default=0.5)
    return parser.parse_args()


def layer(module: nn.Linear | nn.Conv2d, std: float = 2**0.5) -> nn.Module:
    """Orthogonal weights."""
    nn.init.orthogonal_(module.weight, std)
    nn.init.zeros_(module.bias)
    return module


class Agent(nn.Module):
    """One trunk, a policy and a value on it."""

    def __init__(self, envs: gym.vector.VectorEnv) -> None:
        super().__init__()
        channels, actions = envs.single_observation_space.shape[0], envs.single_action_space.shape
        self.network = nn.Sequential(
            layer(nn.Conv2d(channels, 32, 8, stride=4)), nn.ReLU(),
            layer(nn.Conv2d(32, 64, 4, stride=2)), nn.ReLU(),
            nn.Flatten(), nn.LazyLinear(256), nn.ReLU(),
        )  # fmt: skip
        self.network(torch.zeros(1, *envs.single_observation_space.shape))  # sizes the lazy layer
        self.actor_mean = layer(nn.Linear(256, int(np.prod(actions))), std=0.01)
        self.actor_logstd = nn.Parameter(torch.zeros(1, int(np.prod(actions))))
        self.critic = layer(nn.Linear(256, 1), std=1)

    def get_value(self, x: Tensor) -> Tensor:
        """Of pictures in bytes."""
        return self.critic(self.network(x / 255)).squeeze(1)

    def get_action_and_value(self, x: Tensor, action: Tensor | None = None) -> tuple[Tensor, ...]:
        """An action (or the given one), its log-probability, and the value."""
        hidden = self.network(x / 255)
        mean = self.actor_mean(hidden)
        policy = Normal(mean, self.actor_logstd.expand_as(mean).exp())
        action = policy.sample() if action is None else action
        return action, policy.log_prob(action).sum(1), self.critic(hidden).squeeze(1)


def main() -> None:
    """Collect, estimate advantages, update; print every episode's return."""
    args = parse()
    torch.manual_seed(args.seed)
    envs = gym.make_vec(
        args.env_id,
        num_envs=args.num_envs,
        vectorization_mode="sync",
        wrappers=[gym.wrappers.RecordEpisodeStatistics, gym.wrappers.ClipAction],
        # CleanRL's loops expect an ended environment to show its next episode at once.
        vector_kwargs={"autoreset_mode": gym.vector.AutoresetMode.SAME_STEP},
        image_size=args.image_size,
        rendering="fast",
    )
    agent = Agent(envs)
    optimizer = torch.optim.Adam(agent.parameters(), lr=args.learning_rate, eps=1e-5)
    shape = (args.num_steps, args.num_envs)
    obs = torch.zeros(shape + envs.single_observation_space.shape, dtype=torch.uint8)
    actions = torch.zeros(shape + envs.single_action_space.shape)
    logprobs, rewards, dones, values = (torch.zeros(shape) for _ in range(4))
    batch_size = args.num_envs * args.num_steps
    next_obs = torch.as_tensor(envs.reset(seed=args.seed)[0])
    next_done = torch.zeros(args.num_envs)
    global_step = 0
    for _ in range(args.total_timesteps // batch_size):
        for step in range(args.num_steps):
            global_step += args.num_envs
            obs[step], dones[step] = next_obs, next_done
            with torch.no_grad():
                actions[step], logprobs[step], values[step] = agent.get_action_and_value(next_obs)
            seen, reward, terminations, truncations, infos = envs.step(actions[step].numpy())
            rewards[step] = torch.as_tensor(reward)
            next_obs = torch.as_tensor(seen)
            next_done = torch.as_tensor(terminations | truncations).float()
            for number in np.flatnonzero(infos.get("_final_info", [])):
                total = infos["final_info"]["episode"]["r"][number]
                print(f"global_step={global_step}, episodic_return={total:.1f}")

        with torch.no_grad():  # generalised advantage estimation
            advantages, last = torch.zeros(shape), torch.zeros(args.num_envs)
            next_value, not_done = agent.get_value(next_obs), 1 - next_done
            for t in reversed(range(args.num_steps)):
                delta = rewards[t] + args.gamma * next_value * not_done - values[t]
                advantages[t] = last = delta + args.gamma * args.gae_lambda * not_done * last
                next_value, not_done = values[t], 1 - dones[t]
            returns = advantages + values

        flat = [x.flatten(0, 1) for x in (obs, actions, logprobs, advantages, returns)]
        for _ in range(args.update_epochs):
            for chosen in torch.randperm(batch_size).chunk(args.num_minibatches):
                b_obs, b_actions, b_logprobs, b_advantages, b_returns = (x[chosen] for x in flat)
                _, logprob, value = agent.get_action_and_value(b_obs, b_actions)
                ratio = (logprob - b_logprobs).exp()
                scaled = (b_advantages - b_advantages.mean()) / (b_advantages.std() + 1e-8)
                clipped = ratio.clamp(1 - args.clip_coef, 1 + args.clip_coef)
                pg_loss = -torch.minimum(scaled * ratio, scaled * clipped).mean()
                v_loss = 0.5 * (value - b_returns).square().mean()
                loss = pg_loss + args.vf_coef * v_loss
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), args.max_grad_norm)
                optimizer.step()
        print(f"global_step={global_step}, value_loss={v_loss:.4f}, policy_loss={pg_loss:.4f}")
    envs.close()


if __name__ == "__main__":
    main()
