"""Soft Actor-Critic: the paper's base algorithm."""

from __future__ import annotations

import torch
from torch import Tensor

from svea.agents.agent import Agent, Losses
from svea.config.options import SACOptions
from svea.networks import Actor, Critic
from svea.networks.heads import Noise
from svea.views import Views


class SAC(Agent):
    """A squashed Gaussian policy that climbs Q plus entropy, and twin Q-functions."""

    Options = SACOptions
    options: SACOptions
    actor: Actor
    critic: Critic

    def build(self) -> None:
        """Policy, Q-functions and temperature, with the optimisers of policy and temperature."""
        sizes = (self.actions, self.projection, self.hidden)
        self.actor = Actor(self.trunk.features, *sizes).to(self.device)
        self.critic = Critic(self.trunk.features, *sizes).to(self.device)
        self.target_entropy = -float(self.actions)
        options = self.options
        self.log_temperature = torch.tensor(options.initial_temperature, device=self.device).log_()
        self.log_temperature.requires_grad_(True)
        self.add_optimiser("actor", [*self.actor.parameters()], options.learning_rate)
        self.add_optimiser(
            "temperature",
            [self.log_temperature],
            options.temperature_learning_rate,
            options.temperature_beta1,
        )

    def choose(self, features: Tensor, explore: bool, generator: Noise) -> Tensor:
        """Sample from the policy to explore, else take its most likely action."""
        if explore:
            return self.actor.sample(features, generator)[0]
        return self.actor.mode(features)

    @torch.no_grad()
    def value(self, images: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Eq. 1's expectation with SAC's entropy bonus: one action drawn from the policy."""
        features = self.trunk(images)
        actions, log_probability = self.actor.sample(features, generator or self.generator)
        q = self.target_critic(self.target_features(images, features), actions).amin(0)
        return q - self.log_temperature.exp() * log_probability

    def update_actor(self, now: Views) -> Losses:
        """The policy climbs Q plus entropy; the temperature holds the entropy at its target.

        The trunk is evaluated without gradient: the policy's loss must not reach it (stop-grad in
        Section 5.2 of the paper), and one evaluation serves policy and Q where both see one view.
        """
        features, q_features = self.features_of_policy(now)
        actions, log_probability = self.actor.sample(features, self.generator)
        q = self.critic(q_features, actions)
        policy_loss, temperature_loss, seen = self.policy_losses(q, log_probability)
        return self.step("actor", policy_loss) | self.step("temperature", temperature_loss) | seen

    # A seam: `speed` may assign a faster one over it.
    def policy_losses(self, q: Tensor, log_probability: Tensor) -> tuple[Tensor, Tensor, Losses]:
        """The losses of policy and temperature from Q-values (heads, B), and what the log shows."""
        temperature = self.log_temperature.exp()
        policy_loss = (temperature.detach() * log_probability - q.amin(0)).mean()
        surplus = (-log_probability - self.target_entropy).detach()
        temperature_loss = (temperature * surplus).mean()
        seen = {"temperature": temperature.detach(), "entropy": -log_probability.detach().mean()}
        return policy_loss, temperature_loss, seen

    def numbers(self) -> dict[str, Tensor]:
        """The temperature."""
        return {"log_temperature": self.log_temperature}

    @classmethod
    def actions_in(cls, state: dict[str, Tensor]) -> int:
        """A mean and a deviation stand in the policy's last layer for each action."""
        return state["actor.mlp.output.bias"].shape[0] // 2
