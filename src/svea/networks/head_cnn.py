"""Convolutions that a branch has for itself (PAD)."""

from __future__ import annotations

from torch import Tensor, nn

from svea.config.shapes import output_size
from svea.networks.trunk import Trunk, initialise


class HeadCNN(Trunk):
    """The last convolutions of an encoder whose first ones are shared: one copy per branch (PAD).

    Trunk and head together are the same network as an unsplit trunk: a ReLU stands before each
    convolution, or after each in DrQ-v2's form, where the trunk ends in one.
    """

    def __init__(self, maps: tuple[int, int, int], layers: int, drqv2: bool = False) -> None:
        """Continue from a trunk's ``maps`` (filters, height, width) for some layers."""
        super().__init__()
        filters, side, _ = maps
        steps: list[nn.Module] = []
        for _ in range(layers):
            pair = [nn.ReLU(), nn.Conv2d(filters, filters, 3)]
            steps += reversed(pair) if drqv2 else pair
        self.layers = nn.Sequential(*steps)
        self.maps = self.input_shape = maps
        self.features = filters * output_size(side, layers, 0) ** 2
        self.apply(initialise)

    def forward(self, features: Tensor) -> Tensor:
        """The trunk's flat features -> the head's, (B, features)."""
        return self.layers(features.unflatten(1, self.maps)).flatten(1)
