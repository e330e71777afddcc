"""The frame-wise encoder: early convolutions see one frame at a time."""

from __future__ import annotations

from torch import Tensor, nn

from svea.config.shapes import output_size
from svea.networks.cnn import CNN
from svea.networks.trunk import Trunk


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
        self.between = nn.ReLU()  # a module, as every ReLU: agents.guided replaces these
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
