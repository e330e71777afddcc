"""DQN for discrete actions: the paper's Eq. 1 as it stands, with a maximum over actions."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from svea.agents.agent import Agent
from svea.config.options import DQNOptions
from svea.networks import DiscreteCritic, DuelingCritic
from svea.networks.heads import Noise


class DQN(Agent):
    """A Q-function over choices; the policy is its maximum."""

    Options = DQNOptions
    discrete = True
    options: DQNOptions
    critic: DiscreteCritic

    def build(self) -> None:
        """The Q-function."""
        sizes = (self.actions, self.projection, self.hidden)
        kind = DuelingCritic if self.options.dueling else DiscreteCritic
        self.critic = kind(self.trunk.features, *sizes).to(self.device)
        self.epsilon = self.options.epsilon_start

    def anneal(self, decision: int) -> None:
        """The share of random actions falls linearly."""
        options = self.options
        done = min(1.0, decision / max(1, options.epsilon_decisions))
        self.epsilon = options.epsilon_start + done * (options.epsilon_end - options.epsilon_start)

    def choose(self, features: Tensor, explore: bool, generator: Noise) -> Tensor:
        """The best choice as a number (N, 1), or a random one in a share of the cases."""
        best = self.critic(features).argmax(-1)
        if explore:
            draw = uniform(len(best), 2, generator, self.device)  # whether, and which
            random = (draw[:, 1] * self.actions).long().clamp(max=self.actions - 1)
            best = torch.where(draw[:, 0] < self.epsilon, random, best)
        return best[:, None].float()

    def q_heads(self, critic: nn.Module, features: Tensor, actions: Tensor) -> Tensor:
        """The Q-values (1, N) of the choices (N, 1)."""
        return critic(features).gather(1, actions.long()).mT

    @torch.no_grad()
    def value(self, images: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Eq. 1: the target's value of the best action."""
        if not self.options.double:
            return self.target_critic(self.target_trunk(images)).amax(-1)
        features = self.trunk(images)
        best = self.critic(features).argmax(-1, keepdim=True)
        target = self.target_critic(self.target_features(images, features))
        return target.gather(1, best).squeeze(1)

    @classmethod
    def actions_in(cls, state: dict[str, Tensor]) -> int:
        """The Q-function's last layer has one number for each choice."""
        return state["critic.advantage.output.bias"].shape[0]


def uniform(rows: int, columns: int, generator: Noise, device: torch.device) -> Tensor:
    """Numbers in [0, 1), (rows, columns); a row per generator if there are many."""
    if isinstance(generator, Sequence):
        return torch.stack([torch.rand(columns, generator=g, device=device) for g in generator])
    return torch.rand(rows, columns, generator=generator, device=device)
