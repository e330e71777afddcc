"""Target networks: slow copies that follow the trained ones."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn


def frozen_copy(network: nn.Module) -> Any:
    """A copy that no gradient reaches."""
    return copy.deepcopy(network).requires_grad_(False)


def follow(slow: list[nn.Module], fast: list[nn.Module], rate: float) -> None:
    """Move networks' parameters towards others'."""
    torch._foreach_lerp_(parameters_of(slow), parameters_of(fast), rate)


def critic_parts(critic: nn.Module) -> tuple[list[nn.Module], list[nn.Module]]:
    """A critic's projection, which is the encoder's last layer, and its Q-functions."""
    parts = dict(critic.named_children())
    return [parts.pop("projection")], list(parts.values())


def parameters_of(networks: Iterable[nn.Module]) -> list[Tensor]:
    """The parameters of several networks."""
    return [parameter for network in networks for parameter in network.parameters()]
