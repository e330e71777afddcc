"""Guided backpropagation: which pixels raise a Q-value or an action, and the few that do so most.

SGQN (Bertoin et al., 2022) trains with it, `svea analyze saliency` and `svea analyze tid` show it.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from svea.agents.agent import Agent
from svea.networks.masker import COLOURS


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

    In float32: the ties of bfloat16 would let more pixels through a quantile than it says.

    Args:
        agent: whose Q-function.
        images: (B, 9, H, W) in [0, 1].
        actions: (B, A).

    Returns:
        (B, 9, H, W).
    """
    return _gradient_of(
        lambda features: agent.q_heads(agent.critic, features, actions)[0],
        agent.critic,
        agent,
        images,
    )


def guided_action_gradient(agent: Agent, images: Tensor) -> Tensor:
    """The same of the length of the action, for agents that are stored without Q-functions."""
    return _gradient_of(
        lambda features: torch.linalg.vector_norm(agent.choose(features, False, None), dim=-1),
        agent.actor,
        agent,
        images,
    )


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
