"""An agent's optimisers: one Adam for each loss, by name."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

Losses = dict[str, Tensor]


class Optimising:
    """The part of an agent that follows gradients."""

    device: torch.device
    optimisers: dict[str, torch.optim.Adam]

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

    def step(self, name: str, loss: Tensor, *others: str) -> Losses:
        """One optimiser step on the gradient of its own parameters alone; loss and gradient norm.

        A gradient that is not finite leaves the weights as they are, without asking the device:
        the fused optimiser skips the step itself, as it does under loss scaling.

        Args:
            name: of the optimiser, and of the loss in the log.
            loss: what to lower.
            others: further optimisers that step on the same loss, by the same backward pass.
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
    """The gradient with its numbers in the order of the parameter's.

    The fused optimiser takes both for rows of numbers: another order would mix them up in silence.
    """
    if gradient.stride() == parameter.stride():
        return gradient
    return torch.empty_like(parameter).copy_(gradient)
