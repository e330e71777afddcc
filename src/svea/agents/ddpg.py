"""DDPG as in DrQ-v2 (Yarats et al., 2021): another base for the same recipes."""

from __future__ import annotations

import torch
from torch import Tensor

from svea.agents.agent import Agent, Losses
from svea.config.options import DDPGOptions
from svea.networks import Critic, DeterministicActor
from svea.networks.heads import Noise, normal
from svea.views import Views


class DDPG(Agent):
    """A deterministic policy with scheduled noise, and twin Q-functions."""

    Options = DDPGOptions
    options: DDPGOptions
    actor: DeterministicActor
    critic: Critic

    def build(self) -> None:
        """Policy and Q-functions; the noise is a tensor so that a captured graph can read it."""
        sizes = (self.actions, self.projection, self.hidden)
        self.actor = DeterministicActor(self.trunk.features, *sizes).to(self.device)
        self.critic = Critic(self.trunk.features, *sizes).to(self.device)
        self.noise = torch.tensor(self.options.noise_start, device=self.device)
        self.add_optimiser("actor", [*self.actor.parameters()], self.options.learning_rate)

    def anneal(self, decision: int) -> None:
        """The noise falls linearly."""
        options = self.options
        done = min(1.0, decision / max(1, options.noise_decisions))
        self.noise.fill_(options.noise_start + done * (options.noise_end - options.noise_start))

    def choose(self, features: Tensor, explore: bool, generator: Noise) -> Tensor:
        """The policy's action, with noise to explore."""
        actions = self.actor(features)
        if explore:
            actions = (actions + self.noise * normal(actions, generator)).clamp(-1, 1)
        return actions

    def noisy_actions(self, features: Tensor, generator: torch.Generator | None) -> Tensor:
        """Actions with clipped noise, as both losses see them; the gradient ignores the clamp.

        DrQ-v2 does the same: an action at the border would get no gradient at all.
        """
        actions = self.actor(features)
        clip = self.options.noise_clip
        noise = (self.noise * normal(actions, generator or self.generator)).clamp(-clip, clip)
        return actions + ((actions + noise).clamp(-1, 1) - actions).detach()

    @torch.no_grad()
    def value(self, images: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """The target's Q-value of the policy's action, with noise that smooths it."""
        features = self.trunk(images)
        actions = self.noisy_actions(features, generator)
        return self.target_critic(self.target_features(images, features), actions).amin(0)

    def update_actor(self, now: Views) -> Losses:
        """The policy climbs Q; the trunk gets no gradient."""
        features, q_features = self.features_of_policy(now)
        q = self.critic(q_features, self.noisy_actions(features, self.generator)).amin(0)
        return self.step("actor", -q.mean()) | {"noise": self.noise.clone()}

    @classmethod
    def actions_in(cls, state: dict[str, Tensor]) -> int:
        """The policy's last layer has one number for each action."""
        return state["actor.mlp.output.bias"].shape[0]
