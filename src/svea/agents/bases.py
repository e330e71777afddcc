"""The other base algorithms: DDPG as in DrQ-v2, and DQN for discrete actions."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from svea.agents.agent import Agent, Losses
from svea.config.options import DDPGOptions, DQNOptions
from svea.networks import Critic, DeterministicActor, DiscreteCritic, DuelingCritic
from svea.networks.heads import Noise, normal
from svea.views import Views


class DDPG(Agent):
    """A deterministic policy with scheduled noise, and twin Q-functions."""

    Options = DDPGOptions
    last_layer = "actor.mlp.output", 1
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

    def noisy_actions(self, features: Tensor, generator: torch.Generator) -> Tensor:
        """Actions with clipped noise, as both losses see them; the gradient ignores the clamp.

        DrQ-v2 does the same: an action at the border would get no gradient at all.
        """
        actions = self.actor(features)
        clip = self.options.noise_clip
        noise = (self.noise * normal(actions, generator)).clamp(-clip, clip)
        return actions + ((actions + noise).clamp(-1, 1) - actions).detach()

    @torch.no_grad()
    def value(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """The target's Q-value of the policy's action, with noise that smooths it."""
        features = self.trunk(images)
        actions = self.noisy_actions(features, generator)
        return self.target_critic(self.target_features(images, features), actions).amin(0)

    def update_actor(self, now: Views) -> Losses:
        """The policy climbs Q; the trunk gets no gradient."""
        features, q_features = self.features_of_policy(now)
        q = self.critic(q_features, self.noisy_actions(features, self.generator)).amin(0)
        return self.step("actor", -q.mean()) | {"noise": self.noise.clone()}


class DQN(Agent):
    """A Q-function over choices; the policy is its maximum."""

    Options = DQNOptions
    last_layer = "critic.advantage.output", 1
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
    def value(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Eq. 1: the target's value of the best action."""
        if not self.options.double:
            return self.target_critic(self.target_trunk(images)).amax(-1)
        features = self.trunk(images)
        best = self.critic(features).argmax(-1, keepdim=True)
        target = self.target_critic(self.target_features(images, features))
        return target.gather(1, best).squeeze(1)


def uniform(rows: int, columns: int, generator: Noise, device: torch.device) -> Tensor:
    """Numbers in [0, 1), (rows, columns); a row per generator if there are many."""
    if isinstance(generator, Sequence):
        return torch.stack([torch.rand(columns, generator=g, device=device) for g in generator])
    return torch.rand(rows, columns, generator=generator, device=device)
