"""Convolutional trunks in parts: layers that see one frame, and a head with weights of its own."""

from __future__ import annotations

import copy

from torch import Tensor, nn

from svea.config.shapes import output_size
from svea.networks.cnn import CNN
from svea.networks.trunk import Trunk, initialise


class FrameCNN(Trunk):
    """A CNN whose first layers look at each frame of a stack by itself, with the same weights.

    So what early layers find cannot depend on motion, and later layers must tell the motion of the
    robot from that of the background by what moves (SimGRL). ``FrameCNN()`` is SimGRL's: three
    layers of 16 filters for each frame, 84 -> 41 -> 39 -> 37 pixels, then their 48 maps together
    through eight layers of 32: 83,680 parameters, 14,112 features.

    Example:
        >>> import torch
        >>> FrameCNN()(torch.rand(2, 9, 84, 84)).shape
        torch.Size([2, 14112])
    """

    drqv2 = False  # no ReLU after the last layer, as in CNN

    def __init__(
        self,
        channels: int = 9,
        image_size: int = 84,
        layers: int = 11,
        filters: int = 32,
        strided_layers: int = 1,
        frame_layers: int = 3,
    ) -> None:
        """Build the trunk.

        Args:
            channels: of the observation: 3 per stacked frame.
            image_size: height and width of the observation.
            layers: number of convolutions.
            filters: of each convolution; those for a single frame have half of them.
            strided_layers: how many of the first layers have stride 2.
            frame_layers: how many of the first layers see one frame at a time.
        """
        super().__init__()
        output_size(image_size, layers, strided_layers)  # else the message would name a part's size
        frames, strided = channels // 3, min(strided_layers, frame_layers)
        side = output_size(image_size, frame_layers, strided)
        self.single = CNN(3, image_size, frame_layers, max(1, filters // 2), strided)
        self.between = nn.ReLU()  # a module, as every ReLU: agents.sgqn replaces these
        self.joint = CNN(
            frames * self.single.maps[0],
            side,
            layers - frame_layers,
            filters,
            strided_layers - strided,
        )
        self.input_shape = (channels, image_size, image_size)
        self.maps, self.features = self.joint.maps, self.joint.features

    def forward(self, images: Tensor) -> Tensor:
        """(B, 9, H, W) in [0, 1] -> (B, features)."""
        frames = images.unflatten(1, (-1, 3)).flatten(0, 1)  # of each sample, oldest first
        maps = self.between(self.single(frames))
        return self.joint(maps.reshape(-1, *self.joint.input_shape))


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
