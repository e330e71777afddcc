"""SVEA as one would write it down in PyTorch: what `benchmarks/cpu.py` compares with.

Float32, pictures as (batch, channels, height, width), torch's own layers, convolutions and Adam,
one tensor after the other for the slow target. It takes its weights and its draws from an agent of
svea's, so that both compute the same losses; none of svea's networks, augmentations or updates is
used.
"""

from __future__ import annotations

import copy
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from svea.agents import SAC
from svea.config import Config
from svea.replay import Batch


class PlainSVEA:
    """Soft Actor-Critic with SVEA's loss: random shift, random convolution, a small CNN."""

    def __init__(self, config: Config, agent: SAC) -> None:
        """Start from a fresh agent's weights, and draw what it will draw."""
        network, self.options, self.pad = config.network, config.sac, config.shift
        self.target_entropy = -agent.actions
        layers: list[nn.Module] = []
        for number in range(network.layers):
            channels, stride = (
                (network.filters, 9)[number == 0],
                1 + (number < network.strided_layers),
            )
            layers += [nn.Conv2d(channels, network.filters, 3, stride), nn.ReLU()]
        self.encoder = nn.Sequential(*layers[:-1], nn.Flatten())
        self.q_projection, self.policy_projection = (
            projection(agent.trunk.features, network.projection) for _ in range(2)
        )
        state_and_action = network.projection + agent.actions
        self.q1, self.q2 = (mlp(state_and_action, network.hidden, 1) for _ in range(2))
        self.policy = mlp(network.projection, network.hidden, 2 * agent.actions)
        pairs = [
            (self.encoder, agent.trunk),
            (self.q_projection, agent.critic.projection),
            (self.q1, agent.critic.q1),
            (self.q2, agent.critic.q2),
            (self.policy_projection, agent.actor.projection),
            (self.policy, agent.actor.mlp),
        ]
        with torch.no_grad():
            for mine, theirs in pairs:
                for to, source in zip(mine.parameters(), theirs.parameters(), strict=True):
                    to.copy_(source)
        self.q_networks = nn.ModuleList([self.encoder, self.q_projection, self.q1, self.q2])
        self.slow_networks = copy.deepcopy(self.q_networks).requires_grad_(False)
        self.log_temperature = agent.log_temperature.detach().clone().requires_grad_()
        self.q_optimiser = torch.optim.Adam(
            self.q_networks.parameters(), lr=self.options.learning_rate
        )
        self.policy_optimiser = torch.optim.Adam(
            [*self.policy_projection.parameters(), *self.policy.parameters()],
            lr=self.options.learning_rate,
        )
        self.temperature_optimiser = torch.optim.Adam(
            [self.log_temperature],
            lr=self.options.temperature_learning_rate,
            betas=(self.options.temperature_beta1, 0.999),
        )
        self.generator = torch.Generator()
        self.generator.set_state(agent.generator.get_state())

    def update(self, batch: Batch, decision: int) -> dict[str, Tensor]:
        """One update: Q-functions; every other time policy, temperature and slow target."""
        with torch.no_grad():
            successor = self.shift(batch.next_observations)
            action, log_probability = self.sample(self.encoder(successor))
            features = self.slow_networks[0](successor)
            value = torch.min(*q_values(self.slow_networks, features, action))
            value = value - self.log_temperature.exp() * log_probability
            target = (batch.rewards + batch.discounts * value).repeat(2)
        now = self.shift(batch.observations)
        both = self.encoder(torch.cat([now, self.convolve(now)]))
        q1, q2 = q_values(self.q_networks, both, batch.actions.repeat(2, 1))
        q_loss = F.mse_loss(q1, target) + F.mse_loss(q2, target)  # alpha = beta = 0.5
        step(self.q_optimiser, q_loss)
        losses = {"critic_loss": q_loss.detach()}
        if decision % self.options.actor_every == 0:
            losses |= self.update_policy(now)
        if decision % self.options.target_every == 0:
            self.update_target()
        return losses

    def update_policy(self, now: Tensor) -> dict[str, Tensor]:
        """Policy and temperature."""
        with torch.no_grad():
            features = self.encoder(now)
        action, log_probability = self.sample(features)
        temperature = self.log_temperature.exp()
        q = torch.min(*q_values(self.q_networks, features, action))
        policy_loss = (temperature.detach() * log_probability - q).mean()
        step(self.policy_optimiser, policy_loss)
        surplus = (-log_probability - self.target_entropy).detach()
        temperature_loss = (temperature * surplus).mean()
        step(self.temperature_optimiser, temperature_loss)
        return {
            "actor_loss": policy_loss.detach(),
            "temperature_loss": temperature_loss.detach(),
        }

    @torch.no_grad()
    def update_target(self) -> None:
        """The slow target follows."""
        for number, (slow, fast) in enumerate(
            zip(self.slow_networks, self.q_networks, strict=True)
        ):
            tau = self.options.encoder_tau if number < 2 else self.options.q_tau
            for to, source in zip(slow.parameters(), fast.parameters(), strict=True):
                to.copy_(tau * source + (1 - tau) * to)

    def shift(self, images: Tensor) -> Tensor:
        """Bytes -> randomly shifted pixels. Slicing is faster here than DrQ-v2's grid_sample."""
        pad, (rows, columns) = self.pad, images.shape[2:]
        corners = torch.randint(2 * pad + 1, (len(images), 2), generator=self.generator)
        padded = F.pad(images.float() / 255, (pad, pad, pad, pad), mode="replicate")
        return torch.stack(
            [
                image[:, top : top + rows, left : left + columns]
                for image, (top, left) in zip(padded, corners.tolist(), strict=True)
            ]
        )

    def convolve(self, images: Tensor) -> Tensor:
        """A random convolution for each sample, the same for its frames: a group per frame."""
        batch, channels, rows, columns = images.shape
        filters = torch.randn(batch, 3, 3, 3, 3, generator=self.generator)
        padded = F.pad(images, (1, 1, 1, 1), mode="replicate")
        mixed = F.conv2d(
            padded.view(1, batch * channels, rows + 2, columns + 2),
            filters.repeat_interleave(channels // 3, dim=0).flatten(0, 1),
            groups=batch * channels // 3,
        )
        return torch.sigmoid(mixed.view(images.shape))

    def sample(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """An action of the squashed Gaussian policy and its log-probability."""
        mean, log_std = self.policy(self.policy_projection(features)).chunk(2, dim=-1)
        log_std = -10 + 6 * (torch.tanh(log_std) + 1)
        noise = torch.randn(mean.shape, generator=self.generator)
        action = torch.tanh(mean + noise * log_std.exp())
        log_probability = -0.5 * noise**2 - log_std - 0.5 * math.log(2 * math.pi)
        log_probability = log_probability - torch.log(F.relu(1 - action**2) + 1e-6)
        return action, log_probability.sum(-1)


def projection(features: int, size: int) -> nn.Sequential:
    """Features to a small bounded vector."""
    return nn.Sequential(nn.Linear(features, size), nn.LayerNorm(size), nn.Tanh())


def mlp(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    """Two hidden layers."""
    return nn.Sequential(
        nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(),
        nn.Linear(hidden, outputs),
    )  # fmt: skip


def q_values(networks: nn.ModuleList, features: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
    """Both Q-functions' values."""
    _, project, q1, q2 = networks
    x = torch.cat([project(features), actions], dim=-1)
    return q1(x).squeeze(-1), q2(x).squeeze(-1)


def step(optimiser: torch.optim.Optimizer, loss: Tensor) -> None:
    """One step down a loss."""
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
