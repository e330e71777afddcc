"""Soft Actor-Critic from pixels, with the views of any recipe: one update, in order.

The equation numbers are the paper's (Hansen, Su and Wang, 2021); docs/how-it-works.md walks through
this file beside them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from svea.errors import UserError
from svea.networks import Actor, Critic
from svea.recipes import Streams, Views, pixels
from svea.replay import Batch

Losses = dict[str, Tensor]


@dataclass(frozen=True)
class SACOptions:
    """The numbers of the base algorithm; the defaults are the reference's."""

    discount: float = 0.99
    """Discount per decision."""
    learning_rate: float = 1e-3
    """Adam's learning rate for encoder, Q-functions and policy."""
    temperature_learning_rate: float = 1e-4
    """Adam's learning rate for the entropy temperature."""
    temperature_beta1: float = 0.5
    """Adam's first-moment decay for the temperature."""
    initial_temperature: float = 0.1
    """Entropy temperature at the start."""
    encoder_tau: float = 0.05
    """How fast the target's encoder and projection follow."""
    q_tau: float = 0.01
    """How fast the target's Q-functions follow."""
    actor_every: int = 2
    """Policy and temperature are updated on every n-th decision."""
    target_every: int = 2
    """The target network is updated on every n-th decision."""


class SAC:
    """An agent: what to do in a state (``act``) and how to learn from a batch (``update``)."""

    def __init__(
        self,
        encoder: Callable[[], nn.Module],
        actions: int,
        streams: Streams,
        weak: Callable[[Tensor, torch.Generator], Tensor],
        strong: Callable[[Tensor, torch.Generator], Tensor],
        *,
        projection: int = 100,
        hidden: int = 1024,
        options: SACOptions | None = None,
        device: torch.device | str = "cpu",
        seed: int = 0,
    ) -> None:
        """Build networks and optimisers.

        Args:
            encoder: makes the trunk, with attributes ``features`` (its output size) and
                ``input_shape`` (channels, height, width).
            actions: dimensions of the action.
            streams: which views feed the Q-prediction, the Q-target and the policy.
            weak: the weak augmentation, on uint8 images.
            strong: the strong augmentation, on float images in [0, 1].
            projection: size of the projected features.
            hidden: width of the policy's and the Q-functions' layers.
            options: the numbers of the algorithm.
            device: where it computes.
            seed: of the weights and of every later draw.
        """
        self.options = options or SACOptions()
        self.device = torch.device(device)
        self.streams = streams
        self.decision = 0  # how many decisions of training are behind this agent
        self.target_entropy = -float(actions)
        with torch.random.fork_rng(devices=[]):  # the same weights on every device
            torch.manual_seed(seed)
            trunk = encoder()
            features = trunk.features
            assert isinstance(features, int)
            self.trunk = trunk.to(self.device)
            self.actor = Actor(features, actions, projection, hidden).to(self.device)
            self.critic = Critic(features, actions, projection, hidden).to(self.device)
        self.target_trunk = copy.deepcopy(self.trunk).requires_grad_(False)
        self.target_critic = copy.deepcopy(self.critic).requires_grad_(False)
        self.log_temperature = torch.tensor(
            self.options.initial_temperature, device=self.device
        ).log_()
        self.log_temperature.requires_grad_(True)

        def adam(parameters: list[Tensor], rate: float, beta1: float = 0.9) -> torch.optim.Adam:
            return torch.optim.Adam(parameters, lr=rate, betas=(beta1, 0.999), fused=True)

        rate = self.options.learning_rate
        self.optimisers = {
            "critic": adam([*self.trunk.parameters(), *self.critic.parameters()], rate),
            "actor": adam([*self.actor.parameters()], rate),
            "temperature": adam(
                [self.log_temperature],
                self.options.temperature_learning_rate,
                self.options.temperature_beta1,
            ),
        }
        self.generator = torch.Generator(self.device).manual_seed(seed)
        self._weak = lambda images: weak(images, self.generator)
        self._strong = lambda images: strong(images, self.generator)

    # Acting ------------------------------------------------------------------------------------

    @torch.no_grad()
    def act(
        self,
        observations: NDArray[np.uint8] | Tensor,
        explore: bool = False,
        generator: torch.Generator | None = None,
    ) -> NDArray[np.float32]:
        """Actions for uint8 observations: sampled to explore, else the most likely ones.

        Args:
            observations: (N, 9, H, W), or a single one (9, H, W).
            explore: sample from the policy.
            generator: of the sample; the agent's own if None, which also draws for training.

        Returns:
            (N, A), or (A,) for a single observation. This is a device synchronisation.
        """
        images = torch.as_tensor(observations).to(self.device)
        if images.shape[-3:] != self.trunk.input_shape or images.ndim not in (3, 4):
            raise UserError(
                f"observations have shape {tuple(images.shape)}; this agent takes (N, C, H, W) or "
                f"(C, H, W) with (C, H, W) = {self.trunk.input_shape}. Make its environment with "
                "svea.make_env(**config.environment)"
            )
        features = self.trunk(pixels(images if images.ndim == 4 else images[None]))
        if explore:
            actions, _ = self.actor.sample(features, generator or self.generator)
        else:
            actions = self.actor.mode(features)
        return (actions if images.ndim == 4 else actions[0]).cpu().numpy()

    @torch.no_grad()
    def q_value(self, observations: Tensor, actions: Tensor) -> Tensor:
        """The smaller of both Q-values (N,), for uint8 observations (N, 9, H, W)."""
        features = self.trunk(pixels(observations.to(self.device)))
        return self.critic(features, actions.to(self.device)).amin(0)

    # Learning ----------------------------------------------------------------------------------

    def update(self, batch: Batch, decision: int) -> Losses:
        """One update, in the reference's order: Q-functions, policy and temperature, target.

        Args:
            batch: transitions from the replay.
            decision: the agent's decision that pays for this update; the policy and the target are
                updated on even ones.
        """
        now = Views(batch.observations, self._weak, self._strong)
        successor = Views(batch.next_observations, self._weak, self._strong)
        losses = self.update_critic(batch, now, successor)
        if decision % self.options.actor_every == 0:
            losses |= self.update_actor(now)
        if decision % self.options.target_every == 0:
            self.update_target()
        return losses

    def update_critic(self, batch: Batch, now: Views, successor: Views) -> Losses:
        """Eq. 4: a weighted sum of squared errors over the streams, in one batched pass.

        With alpha = beta this is Eq. 7; the weights make alpha != beta the same single pass.
        """
        streams = self.streams
        count = len(streams.prediction)
        target = self.q_target(batch, successor)  # (V, B), or (1, B) where all streams share it
        q = self.critic(
            self.trunk(now.stack(streams.prediction)),  # (V*B, F)
            batch.actions.repeat(count, 1),
        ).unflatten(1, (count, -1))  # (2, V, B)
        errors = (q - target).square().mean(-1).sum(0)  # (V,): mean over B, sum over both Qs
        loss = sum(weight * error for weight, error in zip(streams.weights, errors, strict=True))
        assert isinstance(loss, Tensor)
        self._step("critic", loss)
        return {"critic_loss": loss.detach(), "q_mean": q.detach().mean()}

    @torch.no_grad()
    def q_target(self, batch: Batch, successor: Views) -> Tensor:
        """The target of Eq. 1, with SAC's entropy term, from the recipe's views of s_{t+1}."""
        streams = self.streams
        images = successor.stack(streams.target)  # (K*B, 9, H, W)
        actions, log_probability = self.actor.sample(self.trunk(images), self.generator)
        q = self.target_critic(self.target_trunk(images), actions).amin(0)
        value = q - self.log_temperature.exp() * log_probability
        value = value.unflatten(0, (len(streams.target), -1))  # (K, B)
        if not streams.own_target:
            value = value.mean(0, keepdim=True)  # (1, B)
        return batch.rewards + self.options.discount * (1 - batch.terminated) * value

    def update_actor(self, now: Views) -> Losses:
        """The policy climbs Q plus entropy; the temperature holds the entropy at its target.

        The trunk is evaluated without gradient: the policy's loss must not reach it (stop-grad in
        Section 4 of the paper), and one evaluation serves policy and Q where both see one view.
        """
        streams = self.streams
        with torch.no_grad():
            features = self.trunk(now.stack(streams.policy))
            same_view = streams.policy_q == streams.policy
            q_features = features if same_view else self.trunk(now.stack(streams.policy_q))
        actions, log_probability = self.actor.sample(features, self.generator)
        q = self.critic(q_features, actions).amin(0)
        temperature = self.log_temperature.exp()
        actor_loss = (temperature.detach() * log_probability - q).mean()
        self._step("actor", actor_loss)

        surplus = (-log_probability - self.target_entropy).detach()
        temperature_loss = (temperature * surplus).mean()
        self._step("temperature", temperature_loss)
        return {
            "actor_loss": actor_loss.detach(),
            "temperature_loss": temperature_loss.detach(),
            "temperature": temperature.detach(),
            "entropy": -log_probability.detach().mean(),
        }

    @torch.no_grad()
    def update_target(self) -> None:
        """Eq. 2: the target follows slowly; its encoder (with projection) faster than its Qs."""
        slow, fast = (self.target_trunk, self.target_critic), (self.trunk, self.critic)
        target_encoder, encoder = (
            (*trunk.parameters(), *critic.projection.parameters()) for trunk, critic in (slow, fast)
        )
        target_q, q = (
            (*critic.q1.parameters(), *critic.q2.parameters()) for _, critic in (slow, fast)
        )
        torch._foreach_lerp_(target_encoder, encoder, self.options.encoder_tau)
        torch._foreach_lerp_(target_q, q, self.options.q_tau)

    def _step(self, name: str, loss: Tensor) -> None:
        """One optimiser step on the gradient of its own parameters alone."""
        optimiser = self.optimisers[name]
        parameters = optimiser.param_groups[0]["params"]
        for parameter, gradient in zip(
            parameters, torch.autograd.grad(loss, parameters), strict=True
        ):
            parameter.grad = gradient
        optimiser.step()

    # Saving ------------------------------------------------------------------------------------

    @property
    def networks(self) -> dict[str, nn.Module]:
        """Every network by name, targets included."""
        return {
            "trunk": self.trunk,
            "actor": self.actor,
            "critic": self.critic,
            "target_trunk": self.target_trunk,
            "target_critic": self.target_critic,
        }

    def state_dict(self) -> dict[str, Tensor]:
        """Everything that learns or draws, as flat named tensors."""
        state = {
            f"{name}.{key}": tensor
            for name, network in self.networks.items()
            for key, tensor in network.state_dict().items()
        }
        state["log_temperature"] = self.log_temperature.detach()
        for name, optimiser in self.optimisers.items():
            for index, moments in optimiser.state_dict()["state"].items():
                for key, tensor in moments.items():
                    state[f"optimiser.{name}.{index}.{key}"] = tensor
        state["generator"] = self.generator.get_state()
        return state

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take over a state; optimisers and generator only where it has them."""
        for name, network in self.networks.items():
            prefix = f"{name}."
            network.load_state_dict(
                {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
            )
        with torch.no_grad():
            self.log_temperature.copy_(state["log_temperature"])
        for name, optimiser in self.optimisers.items():
            prefix = f"optimiser.{name}."
            moments: dict[int, dict[str, Tensor]] = {}
            for key, tensor in state.items():
                if key.startswith(prefix):
                    index, field = key.removeprefix(prefix).split(".")
                    moments.setdefault(int(index), {})[field] = tensor.clone()
            optimiser.load_state_dict(optimiser.state_dict() | {"state": moments})
        if "generator" in state:
            restore_generator(self.generator, state["generator"])


def restore_generator(generator: torch.Generator, state: Tensor) -> bool:
    """Continue a generator where it was; False if the state is another kind of device's.

    A run that moves from a GPU to a CPU, or back, then draws other numbers from there on.
    """
    if state.numel() != generator.get_state().numel():
        return False
    generator.set_state(state.cpu())
    return True
