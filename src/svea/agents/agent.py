"""One update: what every base algorithm shares, and Soft Actor-Critic, the paper's.

Shared are the trunk, the views, the Q-loss and the slow target. A base algorithm adds how a
successor is valued, how a policy is improved, and how to act. The equation numbers are the paper's
(Hansen, Su and Wang, 2021); docs/how-it-works.md explains them.
"""

from __future__ import annotations

from collections.abc import Callable
from math import lcm
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from svea.agents.learning import Trainable, follow, frozen_copy, parameters_of
from svea.config.options import AgentOptions, MaDiOptions, SACOptions
from svea.core.seeds import seed_for
from svea.networks import Actor, Critic, Masker, Trunk
from svea.networks.encoders import drawing_weights
from svea.networks.heads import Branch, Noise
from svea.recipes import Streams
from svea.replay import Batch, on_device
from svea.views import Views

if TYPE_CHECKING:
    from svea.agents.auxiliary import Auxiliary

Losses = dict[str, Tensor]
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

    critic: Branch
    target_critic: Branch
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

        ``actions`` are the dimensions of the action, or the number of choices where it is one of
        several. ``streams`` say which of the ``views`` feed Q-prediction, Q-target and policy.
        ``masker`` holds the numbers of the masker before the trunk, if there is one (MaDi). On
        the device ``meta`` an agent computes nothing and takes no memory.
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
            self.masker = Masker(masker.filters).to(device) if masker else None
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

    def value(self, images: Tensor, generator: torch.Generator) -> Tensor:
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

    def q_heads(self, critic: Branch, features: Tensor, actions: Tensor) -> Tensor:
        """The Q-values (heads, N) of actions (N, A)."""
        return critic(features, actions)

    # Acting ------------------------------------------------------------------------------------

    @torch.no_grad()
    def act(
        self, observations: Images, explore: bool = False, generator: Noise = None
    ) -> NDArray[np.float32]:
        """Actions (N, A) for uint8 observations (N, 9, H, W), or (A,) for one (9, H, W).

        The best ones, or as in training to `explore`: drawn from the agent's own generator, another
        one, or one per observation.
        """
        given = torch.as_tensor(observations)
        clean, pixels = self.view_maker.clean, self.view_maker.pixels
        images = clean(on_device(given, self.device)) if given.ndim in (3, 4) else given
        self.trunk.check(images, given)
        self.anneal(self.decision)
        features = self.trunk(self.masked(pixels(images if images.ndim == 4 else images[None])))
        actions = self.choose(features, explore, generator or self.generator)
        chosen = actions if images.ndim == 4 else actions[0]
        return chosen.float().cpu().numpy()  # waits for the device

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
            losses |= self.auxiliary.update(auxiliary_batch or batch, now, successor)
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
        for slow, fast, rate in self.followers():
            follow(slow, fast, rate)

    def followers(self) -> list[tuple[list[nn.Module], list[nn.Module], float]]:
        """Slow networks, the ones that they follow, and how fast."""
        slow, fast, options = self.target_critic, self.critic, self.options
        if not self.has_target_trunk:  # the projection is then just the critic's first layer
            return [([slow], [fast], options.q_tau)]
        encoder = [self.target_trunk, slow.projection], [self.trunk, fast.projection]
        functions = slow.functions(), fast.functions()
        return [(*encoder, options.encoder_tau), (*functions, options.q_tau)]

    @torch.no_grad()
    def features_of_policy(self, now: Views) -> tuple[Tensor, Tensor]:
        """The trunk's features that the policy sees, and those on which Q judges its actions.

        Without gradient: the policy's loss must not reach the trunk.
        """
        views = self.streams.policy_views
        features = self.trunk(self.masked(now.stack(views)))
        of_view = dict(zip(views, features.chunk(len(views)), strict=True))
        seen, judged = (
            features if wanted == views else torch.cat([of_view[view] for view in wanted])
            for wanted in (self.streams.policy, self.streams.policy_q)
        )
        return seen, judged

    # Optimisers -----------------------------------------------------------------------------------

    def add_optimiser(
        self, name: str, parameters: list[Any], rate: float, beta1: float = 0.9
    ) -> None:
        """An Adam under a name; ``step`` and checkpoints find it there."""
        self.optimisers[name] = torch.optim.Adam(
            parameters,
            lr=rate,
            betas=(beta1, 0.999),
            fused=True,
            capturable=self.device.type == "cuda",  # its step count lives on the device
        )

    # A seam: `kernels` may assign a faster one over it.
    def step(self, name: str, loss: Tensor, *others: str) -> Losses:
        """One optimiser step on the gradient of its own parameters alone; loss and gradient norm.

        A gradient that is not finite leaves the weights as they are, without asking the device:
        the fused optimiser skips the step itself, as it does under loss scaling. `others` are
        optimisers that step on the same loss, by the same backward pass.
        """
        optimisers = {each: self.optimisers[each] for each in (name, *others)}
        groups = [optimiser.param_groups[0]["params"] for optimiser in optimisers.values()]
        gradients = torch.autograd.grad(loss, [p for parameters in groups for p in parameters])
        remaining, norms = list(gradients), {}
        for each, parameters in zip(optimisers, groups, strict=True):
            own, remaining = remaining[: len(parameters)], remaining[len(parameters) :]
            for parameter, gradient in zip(parameters, own, strict=True):
                parameter.grad = laid_out_as(parameter, gradient)
            norms[f"{each}_gradient"] = torch.stack(torch._foreach_norm(own)).norm()
        not_finite = 1 - torch.isfinite(sum(norms.values())).float()  # type: ignore[arg-type]
        for optimiser in optimisers.values():
            optimiser.found_inf = not_finite  # type: ignore[attr-defined]
            optimiser.step()
        return {f"{name}_loss": loss.detach()} | norms


def laid_out_as(parameter: Tensor, gradient: Tensor) -> Tensor:
    """The gradient with its numbers in the parameter's order, which the fused optimiser assumes."""
    if gradient.stride() == parameter.stride():
        return gradient
    return torch.empty_like(parameter).copy_(gradient)


def in_turn(function: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """Compute now. `speed` replaces this by a second CUDA stream."""
    value = function()
    return lambda: value


class SAC(Agent):
    """A squashed Gaussian policy that climbs Q plus entropy, and twin Q-functions."""

    Options = SACOptions
    last_layer = "actor.mlp.output", 2  # a mean and a deviation
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
        rate, beta1 = options.temperature_learning_rate, options.temperature_beta1
        self.add_optimiser("temperature", [self.log_temperature], rate, beta1)

    def choose(self, features: Tensor, explore: bool, generator: Noise) -> Tensor:
        """Sample from the policy to explore, else take its most likely action."""
        if explore:
            return self.actor.sample(features, generator)[0]
        return self.actor.mode(features)

    @torch.no_grad()
    def value(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Eq. 1's expectation with SAC's entropy bonus: one action drawn from the policy."""
        features = self.trunk(images)
        actions, log_probability = self.actor.sample(features, generator)
        q = self.target_critic(self.target_features(images, features), actions).amin(0)
        return q - self.log_temperature.exp() * log_probability

    def update_actor(self, now: Views) -> Losses:
        """The policy climbs Q plus entropy; the temperature holds the entropy at its target.

        The policy's loss must not reach the trunk (stop-grad in Section 5.2 of the paper), and one
        evaluation of it serves policy and Q where both see one view.
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
