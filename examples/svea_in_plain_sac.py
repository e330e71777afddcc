"""SVEA in one file: a plain SAC from pixels, and the lines marked `svea` are all that SVEA adds.

The recipe says which view the Q-prediction, the Q-target and the policy see. Compare:

    python examples/svea_in_plain_sac.py --recipe svea
    python examples/svea_in_plain_sac.py --recipe drq

The default of 1000 decisions only shows that it runs; give it more, or an easier task (--task
module:function). docs/how-it-works.md leads from here to the package.
"""

from __future__ import annotations

import argparse
import copy

import numpy as np
import torch
from torch import Tensor, nn

from svea import make_env
from svea.augment import conv, shift  # svea
from svea.recipes import RECIPES, RecipeOptions, streams  # svea
from svea.views import Views  # svea

DISCOUNT, TAU, LEARNING_RATE = 0.99, 0.01, 1e-3


class Encoder(nn.Sequential):
    """Pixels in [0, 1] to features."""

    def __init__(self, channels: int) -> None:
        super().__init__(
            nn.Conv2d(channels, 16, 3, stride=2), nn.ReLU(),
            nn.Conv2d(16, 16, 3, stride=2), nn.ReLU(),
            nn.Flatten(), nn.LazyLinear(50), nn.LayerNorm(50), nn.Tanh(),
        )  # fmt: skip


def mlp(inputs: int, outputs: int) -> nn.Sequential:
    """Two hidden layers."""
    return nn.Sequential(
        nn.Linear(inputs, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, outputs)
    )


class Critic(nn.Module):
    """An encoder and two Q-functions."""

    def __init__(self, channels: int, actions: int) -> None:
        super().__init__()
        self.encoder = Encoder(channels)
        self.qs = nn.ModuleList(mlp(50 + actions, 1) for _ in range(2))

    def forward(self, features: Tensor, actions: Tensor) -> Tensor:
        """Both Q-values, (2, N)."""
        both = torch.cat([features, actions], dim=1)
        return torch.stack([q(both).squeeze(1) for q in self.qs])


class Agent:
    """SAC. The policy uses the critic's encoder and does not train it."""

    def __init__(self, shape: tuple[int, ...], actions: int, recipe: str, pad: int) -> None:
        self.critic = Critic(shape[0], actions)
        self.critic.encoder(torch.zeros(1, *shape))  # sizes the lazy layer
        self.target = copy.deepcopy(self.critic).requires_grad_(False)
        self.policy = mlp(50, 2 * actions)
        self.log_temperature = torch.tensor(-4.0, requires_grad=True)
        self.target_entropy = -float(actions)
        groups = (self.critic.parameters(), self.policy.parameters(), [self.log_temperature])
        self.optimisers = [torch.optim.Adam(group, LEARNING_RATE) for group in groups]
        self.streams = streams(RECIPES[recipe], RecipeOptions(alpha=0.5, beta=0.5))  # svea
        self.pad = pad

    def views(self, observations: Tensor) -> Views:  # svea
        """What a recipe chooses from: as stored, shifted (weak), shifted and convolved (strong)."""
        return Views(observations, lambda x: x, lambda x: shift(x, pad=self.pad), conv)  # svea

    def sample(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Actions in [-1, 1] and their log-probability."""
        mean, log_std = self.policy(features).chunk(2, dim=1)
        normal = torch.distributions.Normal(mean, log_std.clamp(-10, 2).exp())
        raw = normal.rsample()
        slope = 2 * (np.log(2) - raw - nn.functional.softplus(-2 * raw))  # log of tanh's slope
        return raw.tanh(), (normal.log_prob(raw) - slope).sum(1)

    @torch.no_grad()
    def act(self, observation: np.ndarray) -> np.ndarray:
        """One sampled action."""
        pixels = torch.as_tensor(observation)[None] / 255
        return self.sample(self.critic.encoder(pixels))[0][0].numpy()

    def update(
        self,
        observations: Tensor,  # (B, 9, H, W) uint8
        actions: Tensor,
        rewards: Tensor,
        terminated: Tensor,
        successors: Tensor,
    ) -> Tensor:
        """One step each of the Q-functions, the policy, the temperature and the target."""
        now, later = self.views(observations), self.views(successors)  # svea
        temperature = self.log_temperature.exp().detach()
        with torch.no_grad():
            seen = later.stack(self.streams.target)  # svea (was: successors / 255)
            choice, log_probability = self.sample(self.critic.encoder(seen))
            q = self.target(self.target.encoder(seen), choice).amin(0)
            y = rewards + DISCOUNT * (1 - terminated) * (q - temperature * log_probability)

        seen = now.stack(self.streams.prediction)  # svea (was: observations / 255)
        count = len(self.streams.prediction)  # svea
        q = self.critic(self.critic.encoder(seen), actions.repeat(count, 1))
        errors = (q.unflatten(1, (count, -1)) - y).square().mean(2).sum(0)  # svea: per stream
        loss = errors @ torch.tensor(self.streams.weights)  # svea
        self.step(0, loss)

        with torch.no_grad():
            features = self.critic.encoder(now.stack(self.streams.policy))  # svea
        choice, log_probability = self.sample(features)
        self.step(1, (temperature * log_probability - self.critic(features, choice).amin(0)).mean())
        surplus = (-log_probability - self.target_entropy).detach()
        self.step(2, (self.log_temperature.exp() * surplus).mean())
        with torch.no_grad():
            for slow, fast in zip(self.target.parameters(), self.critic.parameters(), strict=True):
                slow.lerp_(fast, TAU)
        return loss.detach()

    def step(self, number: int, loss: Tensor) -> None:
        """One optimiser's step."""
        self.optimisers[number].zero_grad()
        loss.backward()
        self.optimisers[number].step()


def main() -> None:
    """Train, and print every episode's return."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--recipe", choices=("svea", "drq", "drq+aug"), default="svea")
    parser.add_argument("--task", default="cartpole_swingup")
    parser.add_argument("--image-size", type=int, default=40)
    parser.add_argument("--decisions", type=int, default=1000)
    parser.add_argument("--warmup", type=int, default=100, help="random decisions at the start")
    parser.add_argument("--batch-size", type=int, default=32)
    options = parser.parse_args()

    torch.manual_seed(0)
    random = np.random.default_rng(0)
    env = make_env(options.task, image_size=options.image_size, rendering="fast")
    shape = env.observation_space.shape
    agent = Agent(shape, env.action_space.shape[0], options.recipe, pad=options.image_size // 20)
    memory: list[tuple] = []
    observation, _ = env.reset(seed=0)
    total = 0.0
    for decision in range(1, options.decisions + 1):
        if decision <= options.warmup:
            action = random.uniform(-1, 1, env.action_space.shape).astype(np.float32)
        else:
            action = agent.act(observation)
        successor, reward, terminated, truncated, _ = env.step(action)
        memory.append((observation, action, np.float32(reward), np.float32(terminated), successor))
        observation, total = successor, total + reward
        if decision > options.warmup:
            chosen = [memory[k] for k in random.integers(len(memory), size=options.batch_size)]
            loss = agent.update(*(torch.as_tensor(np.stack(x)) for x in zip(*chosen, strict=True)))
        if terminated or truncated:
            learned = f", loss {loss:.4f}" if decision > options.warmup else ""
            print(f"decision {decision}: return {total:.1f}{learned}")
            observation, _ = env.reset()
            total = 0.0
    env.close()


if __name__ == "__main__":
    main()
