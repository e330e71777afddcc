"""The policy of DDPG."""

from __future__ import annotations

import torch
from torch import Tensor

from svea.networks.heads import MLP, Branch


class DeterministicActor(Branch):
    """The policy of DDPG: one action per state, with its own projection.

    Example:
        >>> DeterministicActor(128, actions=6)(torch.rand(2, 128)).shape
        torch.Size([2, 6])
    """

    def build(self, actions: int, projection: int, hidden: int) -> None:
        """One network for the actions."""
        self.mlp = MLP(projection, hidden, actions)

    def forward(self, features: Tensor) -> Tensor:
        """Features (B, F) -> actions (B, A) in (-1, 1)."""
        return torch.tanh(self.mlp(self.projection(features)))
