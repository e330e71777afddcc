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

    def step(self, name: str, loss: Tensor) -> Losses:
        """One optimiser step on the gradient of its own parameters alone; loss and gradient norm.

        A gradient that is not finite leaves the weights as they are, without asking the device:
        the fused optimiser skips the step itself, as it does under loss scaling.
        """
        optimiser = self.optimisers[name]
        parameters = optimiser.param_groups[0]["params"]
        gradients = torch.autograd.grad(loss, parameters)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        norm = torch.stack(torch._foreach_norm(gradients)).norm()
        optimiser.found_inf = 1 - torch.isfinite(norm).float()  # type: ignore[attr-defined]
        optimiser.step()
        return {f"{name}_loss": loss.detach(), f"{name}_gradient": norm}
