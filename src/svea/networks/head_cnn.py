"""The end of an encoder a second time: convolutions that PAD's task has for itself."""

from __future__ import annotations

import copy

from torch import Tensor, nn

from svea.config.shapes import output_size
from svea.networks.cnn import CNN
from svea.networks.frame_cnn import FrameCNN
from svea.networks.trunk import Trunk, initialise


class HeadCNN(Trunk):
    """The last convolutions of an encoder whose first ones are shared.

    Trunk and head together are the same network as an unsplit trunk: a ReLU stands before each
    convolution, or after each in DrQ-v2's form, where the trunk ends in one.

    Example:
        >>> import torch
        >>> shared = CNN(layers=8)  # of the paper's 11
        >>> HeadCNN(shared.maps, layers=3)(shared(torch.rand(2, 9, 84, 84))).shape
        torch.Size([2, 14112])
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


def own_head(trunk: Trunk, layers: int) -> nn.Module:
    """The last convolutions of a trunk again, with weights of their own."""
    if layers == 0:
        return nn.Identity()
    shared = without_last(trunk, layers)
    return HeadCNN(shared.maps, layers, shared.drqv2)


def without_last(trunk: Trunk, layers: int) -> CNN | FrameCNN:
    """A trunk that ends this many convolutions earlier; its weights are the given trunk's own."""
    assert isinstance(trunk, CNN | FrameCNN), "only convolutions can be shared in part"
    part = copy.copy(trunk)
    part._modules = dict(trunk._modules)  # which copying alone would share
    filters, side, _ = trunk.maps
    side += 2 * layers  # each of them takes a pixel from every edge
    part.maps, part.features = (filters, side, side), filters * side**2
    if isinstance(trunk, FrameCNN):
        part.joint = without_last(trunk.joint, layers)
    else:
        part.layers = nn.Sequential(*list(trunk.layers)[: -2 * layers])
    return part
