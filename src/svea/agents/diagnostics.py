"""What an agent's values depend on: noise of Q-targets, gaps of augmentations, guided gradients.

docs/analyses.md defines every quantity.
"""

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from svea.agents.agent import Agent
from svea.augment import Augment
from svea.networks.parts import COLOURS
from svea.replay import Batch


@torch.no_grad()
def q_targets(
    agent: Agent,
    batch: Batch,
    draws: int,
    generator: torch.Generator,
    views: Sequence[tuple[str, int]] | None = None,
) -> Tensor:
    """Q-targets under fresh draws of a view of the successor, (draws, targets, B) in float64.

    The view is by default the recipe's own. The policy's noise is the same in every draw, so that
    targets differ by the view alone. A transition has more than one of them only where each stream
    of the prediction bootstraps from its own view.
    """
    streams = agent.streams
    shared = views is not None or not streams.own_target
    chosen = tuple(views or streams.target)
    seed = int(torch.randint(2**31, (), generator=generator, device=generator.device))
    noise = torch.Generator(agent.device)
    targets = []
    for _ in range(draws):
        images = agent.views(batch.next_observations, generator).stack(chosen)
        value = agent.value(agent.masked(images), noise.manual_seed(seed)).double()  # (K*B,)
        value = value.unflatten(0, (len(chosen), -1))  # (K, B)
        if shared:
            value = value.mean(0, keepdim=True)  # (1, B)
        targets.append(batch.rewards + batch.discounts * value)
    return torch.stack(targets)


def q_target_variance(agent: Agent, batch: Batch, draws: int, generator: torch.Generator) -> float:
    """The variance of the Q-target over draws of its view, averaged over a batch's transitions."""
    return float(q_targets(agent, batch, draws, generator).var(0).mean())


@torch.no_grad()
def q_gap_of(
    agent: Agent, batch: Batch, augment: Augment, draws: int, generator: torch.Generator
) -> float:
    """Mean |Q(s, a) - Q(aug(s), a)| over a batch's transitions and draws of the augmentation."""
    clean = agent.views(batch.observations, generator)["clean", 0]
    q = agent.q(clean, batch.actions)
    gaps = [
        (agent.q(augment(clean, generator=generator), batch.actions) - q).abs().double().mean()
        for _ in range(draws)
    ]
    return float(torch.stack(gaps).mean())


class _GuidedReLU(torch.autograd.Function):
    """A ReLU whose gradient is clipped at zero as well (Springenberg et al., 2015)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x > 0)
        return x.relu()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        (alive,) = ctx.saved_tensors
        return gradient.relu() * alive


@contextlib.contextmanager
def guided(*networks: nn.Module) -> Iterator[None]:
    """A region in which networks compute as they are written, with guided ReLUs.

    Fast versions of their forward passes are put aside: those have their ReLUs inside.
    """
    modules = {module for network in networks for module in network.modules()}
    fast = {m: (vars(m).pop("forward", None), m._compiled_call_impl) for m in modules}
    for module in modules:
        module._compiled_call_impl = None
        if isinstance(module, nn.ReLU):
            module.forward = _GuidedReLU.apply  # type: ignore[method-assign]
    try:
        yield
    finally:
        for module, (forward, compiled) in fast.items():
            vars(module).pop("forward", None)
            module._compiled_call_impl = compiled
            if forward is not None:
                module.forward = forward


def guided_gradient(agent: Agent, images: Tensor, actions: Tensor) -> Tensor:
    """The guided gradient of the first Q-value with respect to pixels; no parameter gets any.

    Of images (B, 9, H, W) in [0, 1] and actions (B, A). In float32: the ties of bfloat16 would let
    more pixels through a quantile than it says.
    """
    critic = agent.critic
    return _gradient_of(lambda f: agent.q_heads(critic, f, actions)[0], critic, agent, images)


def guided_action_gradient(agent: Agent, images: Tensor) -> Tensor:
    """The same of the length of the action, for agents that are stored without Q-functions."""

    def length(features: Tensor) -> Tensor:
        return torch.linalg.vector_norm(agent.choose(features, False, None), dim=-1)

    return _gradient_of(length, agent.actor, agent, images)


def _gradient_of(
    score: Callable[[Tensor], Tensor], head: nn.Module, agent: Agent, images: Tensor
) -> Tensor:
    """The guided gradient of what a head makes of the features, with respect to pixels."""
    pixels = images.detach().float().requires_grad_(True)
    networks = [agent.trunk, head, *([agent.masker] if agent.masker is not None else [])]
    with guided(*networks), torch.autocast(pixels.device.type, enabled=False), torch.enable_grad():
        seen = agent.masked(pixels.view_as(pixels))  # a leaf breaks torch's counter of operations
        # Rows of a batch do not mix, so the gradient of the sum holds each row's own.
        (gradient,) = torch.autograd.grad(score(agent.trunk(seen)).sum(), pixels)
    return gradient


def influence(gradient: Tensor) -> Tensor:
    """The largest gradient of each pixel's colours, (B, 9, H, W) -> (B, frames, H, W)."""
    return gradient.abs().unflatten(1, (-1, COLOURS)).amax(2)


def most_influential(influences: Tensor, quantile: float) -> Tensor:
    """Pixels of each frame at or above a quantile of its influences, (B, frames, H, W) bool.

    The quantile lies between two influences, or on one: at or above it is at or above the next one
    up, and to find that nothing must be sorted.
    """
    flat = influences.flatten(2)
    pixels = flat.shape[2]
    count = pixels - math.ceil(quantile * (pixels - 1))
    least = flat.topk(count, dim=2, sorted=False).values.amin(2, keepdim=True)
    return (flat >= least).view_as(influences)
