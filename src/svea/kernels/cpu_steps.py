"""Optimiser steps and target networks on a CPU, a whole network at a time (steps.c).

Torch's fused Adam spends most of a step on a small network in Python and in 24 tensors' norms.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from svea.agents.optimising import Optimising
from svea.kernels.cpu import call, library
from svea.kernels.steps import followers, gradients_of

if TYPE_CHECKING:
    from svea.agents.agent import Agent, Losses

AS_A_PICTURE = 1024  # numbers whose step takes as long as a picture in other kernels


class StepsInC:
    """An agent's `step` and `update_target`, for weights that lie together in float32."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.slow, self.fast, rates = zip(*followers(agent), strict=True)
        self.rates, self.sizes = torch.tensor(rates), [each.numel() for each in self.slow]

    def step(self, name: str, loss: Tensor, *others: str) -> Losses:
        """What `Optimising.step` does: norm, judgement, step."""
        if others:  # they are judged together
            return Optimising.step(self.agent, name, loss, *others)
        optimiser = self.agent.optimisers[name]
        group = optimiser.param_groups[0]
        parameters = group["params"]
        gradients = gradients_of(loss, optimiser)  # kept until the kernels are done
        states = [optimiser.state[parameter] for parameter in parameters]
        moment, square, steps = (
            places([state[key] for state in states]) for key in ("exp_avg", "exp_avg_sq", "step")
        )
        sizes = [p.numel() for p in parameters]
        count, everything = len(sizes), sum(sizes)
        of_gradients, kernels = places(gradients), library()
        norm = torch.empty(())
        numbers = torch.tensor([group["lr"], *group["betas"], group["eps"]], dtype=torch.float64)
        call(kernels.judge, 1, of_gradients, steps, sizes, count, norm)
        given = (places(parameters), of_gradients, moment, square, steps, sizes, count, everything)
        call(kernels.adam, everything // AS_A_PICTURE, *given, numbers.data_ptr(), norm)
        return {f"{name}_loss": loss.detach(), f"{name}_gradient": norm}

    @torch.no_grad()
    def update_target(self) -> None:
        """What `Agent.update_target` does."""
        sizes, everything = self.sizes, sum(self.sizes)
        given = (places(self.slow), places(self.fast), sizes, len(sizes), everything, self.rates)
        call(library().follow, everything // AS_A_PICTURE, *given)


def places(tensors: Sequence[Tensor]) -> list[int]:
    """Where tensors lie that are in one piece, in torch's own order or channels last."""
    return [tensor.data_ptr() for tensor in tensors]
