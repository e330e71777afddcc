"""SGQN (Bertoin et al., 2022): a Q-function that looks at few pixels, and can say which.

Its guided gradient also serves `svea analyze saliency` and `svea analyze tid`.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from svea.agents.agent import Agent, Losses
from svea.agents.auxiliary import Auxiliary, projection_of
from svea.config.options import SGQNOptions
from svea.networks.parts import COLOURS, AttributionDecoder
from svea.replay import Batch
from svea.views import Views


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


class SGQN(Auxiliary):
    """Two terms around one mask: the pixels of each frame that raise Q most (guided gradient).

    In the Q-loss, Q must stay the same when all other pixels are painted over. In a task of its
    own, the encoder must tell from a strong view where those pixels are.
    """

    def __init__(self, agent: Agent, options: SGQNOptions) -> None:
        super().__init__(agent)
        self.every, self.options = options.every, options
        channels, image_size, _ = agent.trunk.input_shape
        self.decoder = AttributionDecoder(agent.projection + agent.actions, channels, image_size)
        self.to(agent.device)
        self.optimise([agent.trunk, projection_of(agent.critic)], options.learning_rate)

    def attributed(self, images: Tensor, actions: Tensor) -> Tensor:
        """The pixels that count, (B, 9, H, W) bool: the same for a pixel's three colours."""
        influences = influence(guided_gradient(self.agent, images, actions))
        return most_influential(influences, self.options.quantile).repeat_interleave(COLOURS, 1)

    def critic_terms(self, batch: Batch, now: Views, q: Tensor) -> Losses:
        """Consistency: Q of the first stream's view is Q of what is left of it.

        All other pixels become one grey, drawn for each update. Gradients flow into both Q-values.
        """
        if not self.options.consistency:
            return {}
        agent, actions = self.agent, batch.actions
        images = now[agent.streams.prediction[0]]
        darkest, brightest = images.aminmax()
        draw = torch.rand((), generator=agent.generator, device=agent.device)
        grey = (darkest + draw * (brightest - darkest)).to(images.dtype)
        left = torch.where(self.attributed(images, actions), images, grey)
        q_left = agent.q_heads(agent.critic, agent.trunk(agent.masked(left)), actions)
        error = (q[:, : len(actions)] - q_left).square().mean(-1).sum()  # both Qs
        return {"consistency_loss": self.options.consistency * error}

    def loss(
        self, batch: Batch, now: Views, successor: Views, own_batch: Batch | None
    ) -> tuple[Tensor, Losses]:
        """Cross entropy of finding, in the strong view, the pixels that count in the weak one."""
        agent = self.agent
        actions = (
            F.one_hot(batch.actions[:, 0].long(), agent.actions) if agent.discrete
            else batch.actions
        )  # fmt: skip
        wanted = self.attributed(now["weak", 0], batch.actions)  # by the Q-function as it is now
        features = projection_of(agent.critic)(agent.trunk(self.seen(now["strong", 0])))
        logits = self.decoder(torch.cat([features, actions.to(features.dtype)], 1))
        return F.binary_cross_entropy_with_logits(logits.float(), wanted.float()), {}
