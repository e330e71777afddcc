"""Diagnostics on one batch: the noise of Q-targets, and how far an augmentation moves Q.

docs/evaluation.md defines every quantity.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from svea.agents.agent import Agent
from svea.augment import Augment
from svea.replay import Batch


@torch.no_grad()
def q_targets(
    agent: Agent,
    batch: Batch,
    draws: int,
    generator: torch.Generator,
    views: Sequence[tuple[str, int]] | None = None,
) -> Tensor:
    """The Q-targets of a batch under fresh draws of the view that they are computed from.

    The policy's noise is the same in every draw, so that targets differ by the view alone.

    Args:
        agent: whose target network and policy.
        batch: transitions, on the agent's device.
        draws: of the views.
        generator: of the views and, once, of the policy's noise; on the agent's device.
        views: of the successor; default: those that the agent's recipe feeds its target.

    Returns:
        (draws, targets, B) in float64. There is more than one target per transition only where each
        stream of the prediction bootstraps from its own view.
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
