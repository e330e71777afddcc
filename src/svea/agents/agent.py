"""What every base algorithm shares: the trunk, the views, the Q-loss, the slow target.

A base algorithm adds how a successor is valued, how a policy is improved, and how to act. The
equation numbers are the paper's (Hansen, Su and Wang, 2021); docs/how-it-works.md explains them.
"""

from __future__ import annotations

from collections.abc import Callable
from math import lcm
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from svea.agents.learning import (
    Losses,
    Trainable,
    critic_parts,
    follow,
    frozen_copy,
    parameters_of,
)
from svea.config.options import AgentOptions, MaDiOptions
from svea.core.seeds import seed_for
from svea.networks import Masker, Trunk
from svea.networks.heads import Noise
from svea.networks.trunk import drawing_weights
from svea.recipes import Streams
from svea.replay import Batch, on_device
from svea.views import Views

if TYPE_CHECKING:
    from svea.agents.auxiliary import Auxiliary

Images = NDArray[np.uint8] | Tensor
Overlap = Callable[[Callable[[], Tensor]], Callable[[], Tensor]]
"""Starts a computation; calling the result waits for it."""


class Phase(NamedTuple):
    """Which parts of an update are due, besides the Q-functions."""

    actor: bool
    target: bool
    auxiliary: bool


class Agent(Trainable):
    """An agent: what to do in a state (``act``) and how to learn from a batch (``update``)."""

    Options: ClassVar[type[AgentOptions]] = AgentOptions
    discrete = False  # whether an action is one of several choices, not a vector in [-1, 1]

    critic: nn.Module
    actor: nn.Module
    pictures: dict[str, Any] | None = None  # what overlay mixes in, as a run records it

    def __init__(
        self,
        encoder: Callable[[], Trunk],
        actions: int,
        streams: Streams,
        views: Views,
        *,
        projection: int = 100,
        hidden: int = 1024,
        options: Any = None,
        masker: MaDiOptions | None = None,
        make_auxiliary: Callable[[Agent], Auxiliary] | None = None,
        device: torch.device | str = "cpu",
        seed: int = 0,
    ) -> None:
        """Build networks and optimisers.

        Args:
            encoder: makes the trunk.
            actions: dimensions of the action, or the number of choices where it is one of several.
            streams: which views feed the Q-prediction, the Q-target and the policy.
            views: the clean, the weak and the strong view, without a batch.
            projection: size of the projected features.
            hidden: width of the policy's and the Q-functions' layers.
            options: the numbers of the algorithm.
            masker: the numbers of the masker before the trunk, if there is one (MaDi).
            make_auxiliary: makes the auxiliary task, if there is one.
            device: where it computes; meta: nowhere, and it takes no memory.
            seed: of the weights and of every later draw.
        """
        self.options = options = options or self.Options()
        self.device = torch.device(device)
        self.streams, self.view_maker, self.actions = streams, views, actions
        self.projection, self.hidden = projection, hidden
        self.decision = 0  # how many decisions it has been trained for
        drawn_on = "cpu" if self.device.type == "meta" else self.device  # meta has shapes alone
        self.generator = torch.Generator(drawn_on).manual_seed(seed_for(seed, "agent"))
        self.overlap: Overlap = in_turn  # a seam: `speed` may assign a second stream over it
        self.optimisers: dict[str, torch.optim.Adam] = {}
        self.has_target_trunk = options.encoder_tau < 1  # else the target shares the trunk
        with drawing_weights(seed_for(seed, "weights")):
            self.trunk = encoder().to(self.device)
            self.build()
            self.auxiliary = make_auxiliary(self) if make_auxiliary else None
            self.masker = Masker(masker.filters, self.trunk).to(device) if masker else None
        self.target_trunk = frozen_copy(self.trunk) if self.has_target_trunk else self.trunk
        self.target_critic = frozen_copy(self.critic)
        trained = parameters_of([self.trunk, self.critic])
        self.add_optimiser("critic", trained, options.learning_rate)
        if masker and self.masker is not None:
            self.add_optimiser("masker", [*self.masker.parameters()], masker.learning_rate)

    # What a base algorithm adds ----------------------------------------------------------------

    def build(self) -> None:
        """Make the critic, and the actor if there is one."""
        raise NotImplementedError

    def value(self, images: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """What the target network expects of successors (N, 9, H, W), `masked` already: (N,)."""
        raise NotImplementedError

    def choose(self, features: Tensor, explore: bool, generator: Noise) -> Tensor:
        """Actions (N, A) from the trunk's features."""
        raise NotImplementedError

    def update_actor(self, now: Views) -> Losses:
        """Improve the policy; nothing to do where it is read off the Q-function."""
        return {}

    def anneal(self, decision: int) -> None:
        """Set the numbers that change with time."""

    def q_heads(self, critic: nn.Module, features: Tensor, actions: Tensor) -> Tensor:
        """The Q-values (heads, N) of actions (N, A)."""
        return critic(features, actions)

    # Acting ------------------------------------------------------------------------------------

    @torch.no_grad()
    def act(
        self, observations: Images, explore: bool = False, generator: Noise = None
    ) -> NDArray[np.float32]:
        """Actions (N, A) for uint8 observations (N, 9, H, W), or (A,) for one (9, H, W).

        Args:
            observations: what the environments show.
            explore: act as in training, else take the best actions.
            generator: of the exploration, or one per observation; by default the agent's own.
        """
        given = torch.as_tensor(observations)
        clean, pixels = self.view_maker.clean, self.view_maker.pixels
        images = clean(on_device(given, self.device)) if given.ndim in (3, 4) else given
        self.trunk.check(images, given)
        self.anneal(self.decision)
        features = self.trunk(self.masked(pixels(images if images.ndim == 4 else images[None])))
        actions = self.choose(features, explore, generator or self.generator)
        return (
            (actions if images.ndim == 4 else actions[0]).float().cpu().numpy()
        )  # waits for the device

    @torch.no_grad()
    def q_value(self, observations: Tensor, actions: Tensor) -> Tensor:
        """The smallest Q-value (N,) of actions (N, A) in uint8 observations (N, 9, H, W)."""
        views = self.views(on_device(observations, self.device))
        return self.q(views["clean", 0], actions.to(self.device))

    def q(self, images: Tensor, actions: Tensor) -> Tensor:
        """The smallest Q-value (N,) of actions (N, A) in views (N, 9, H, W), values in [0, 1]."""
        return self.q_heads(self.critic, self.trunk(self.masked(images)), actions).amin(0)

    def masked(self, images: Tensor) -> Tensor:
        """What the trunk gets to see of views (N, 9, H, W): all of them, or what MaDi leaves."""
        return images if self.masker is None else self.masker(images)

    def views(self, observations: Tensor, generator: torch.Generator | None = None) -> Views:
        """The views of uint8 observations, drawn from the agent's own generator or another."""
        return self.view_maker(observations, generator or self.generator)

    # Learning ----------------------------------------------------------------------------------

    def schedule(self, decision: int) -> Phase:
        """Set what changes with time, on the host; say which parts of this update are due."""
        self.anneal(decision)
        options, auxiliary = self.options, self.auxiliary
        return Phase(
            decision % options.actor_every == 0,
            decision % options.target_every == 0,
            auxiliary is not None and decision % auxiliary.every == 0,
        )

    def last_whole_update(self, number: int) -> int:
        """The last update, up to this one, that has every part."""
        own = [self.auxiliary.every] if self.auxiliary is not None else []
        return number - number % lcm(self.options.actor_every, self.options.target_every, *own)

    def update(self, batch: Batch, phase: Phase, auxiliary_batch: Batch | None = None) -> Losses:
        """One update, in the reference's order: Q-functions, policy, target, auxiliary task.

        A function of tensors that never asks the device anything, so it can be captured whole.
        ``phase`` is what ``schedule`` returned; some auxiliary tasks have a batch of their own.
        """
        now, successor = self.views(batch.observations), self.views(batch.next_observations)
        losses = self.update_critic(batch, now, successor)
        if phase.actor:
            losses |= self.update_actor(now)
        if phase.target:
            self.update_target()
        if phase.auxiliary and self.auxiliary is not None:
            losses |= self.auxiliary.update(batch, now, successor, auxiliary_batch)
        return losses

    def update_critic(self, batch: Batch, now: Views, successor: Views) -> Losses:
        """One step of encoder and Q-functions, and of the masker, which nothing else trains."""
        loss, q = self.critic_loss(batch, now, successor)
        terms = self.auxiliary.critic_terms(batch, now, q) if self.auxiliary is not None else {}
        others = ("masker",) if self.masker is not None else ()
        losses = self.step("critic", sum(terms.values(), loss), *others)
        losses |= {name: term.detach() for name, term in terms.items()}
        return losses | {"q_mean": q.detach().mean()}

    def critic_loss(self, batch: Batch, now: Views, successor: Views) -> tuple[Tensor, Tensor]:
        """Eq. 4: a weighted sum of squared errors over the streams, in one batched pass.

        With alpha = beta this is Eq. 7; the weights make alpha != beta the same single pass.
        """
        streams, count = self.streams, len(self.streams.prediction)
        # The target is (V, B), or (1, B) where all streams share it.
        target = self.overlap(lambda: self.q_target(batch, successor))
        features = self.trunk(self.masked(now.stack(streams.prediction)))  # (V*B, F)
        q = self.q_heads(self.critic, features, batch.actions.repeat(count, 1))
        return self.weighted_error(q, target()), q

    # A seam: `speed` may assign a faster one over it.
    def weighted_error(self, q: Tensor, target: Tensor) -> Tensor:
        """Squared errors of Q-values (heads, V*B): mean over B, sum over both Qs, weighted by V."""
        errors = q.unflatten(1, (-1, target.shape[-1])) - target  # (heads, V, B)
        error = errors.square().mean(-1).sum(0)  # (V,)
        loss = sum(weight * each for weight, each in zip(self.streams.weights, error, strict=True))
        assert isinstance(loss, Tensor)
        return loss

    @torch.no_grad()
    def q_target(self, batch: Batch, successor: Views) -> Tensor:
        """The target of Eq. 1, from the recipe's views of s_{t+1}."""
        streams = self.streams
        value = self.value(self.masked(successor.stack(streams.target)), self.generator)  # (K*B,)
        value = value.unflatten(0, (len(streams.target), -1))  # (K, B)
        if not streams.own_target:
            value = value.mean(0, keepdim=True)  # (1, B)
        return batch.rewards + batch.discounts * value

    def target_features(self, images: Tensor, features: Tensor) -> Tensor:
        """The target's features of images, whose features from the trunk are given."""
        return self.target_trunk(images) if self.has_target_trunk else features

    # A seam: `speed` may assign a faster one over it.
    @torch.no_grad()
    def update_target(self) -> None:
        """Eq. 2: the target follows slowly; its encoder (with projection) faster than its Qs."""
        # Without a target encoder the projection is just the critic's first layer.
        encoder_tau = self.options.encoder_tau if self.has_target_trunk else self.options.q_tau
        if self.has_target_trunk:
            follow([self.target_trunk], [self.trunk], encoder_tau)
        slow_projection, slow_q = critic_parts(self.target_critic)
        projection, q = critic_parts(self.critic)
        follow(slow_projection, projection, encoder_tau)
        follow(slow_q, q, self.options.q_tau)

    @torch.no_grad()
    def features_of_policy(self, now: Views) -> tuple[Tensor, Tensor]:
        """The trunk's features that the policy sees, and those on which Q judges its actions.

        Without gradient: the policy's loss must not reach the trunk.
        """
        streams = self.streams
        features = self.trunk(self.masked(now.stack(streams.policy)))
        if streams.policy_q == streams.policy:
            return features, features
        of_view = dict(zip(streams.policy, features.chunk(len(streams.policy)), strict=True))
        return features, torch.cat([of_view[view] for view in streams.policy_q])


def in_turn(function: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """Compute now. `speed` replaces this by a second CUDA stream."""
    value = function()
    return lambda: value
