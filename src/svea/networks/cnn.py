"""The convolutional encoder: the trunk f that the Q-function and the policy share."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from svea.config.options import output_size
from svea.networks.trunk import Trunk, initialise


class CNN(Trunk):
    """3x3 convolutions without padding, ReLU between them and none after the last.

    ``CNN()`` is the paper's: 11 layers of 32 filters, the first with stride 2, 84 -> 41 -> ... ->
    21 pixels, 95,104 parameters, 14,112 features.

    Example:
        >>> features = CNN()(torch.rand(2, 9, 84, 84))
        >>> features.shape
        torch.Size([2, 14112])
    """

    def __init__(
        self,
        channels: int = 9,
        image_size: int = 84,
        layers: int = 11,
        filters: int = 32,
        strided_layers: int = 1,
        drqv2: bool = False,
    ) -> None:
        """Build the trunk.

        Args:
            channels: of the observation: 3 per stacked frame.
            image_size: height and width of the observation.
            layers: number of convolutions.
            filters: of each convolution.
            strided_layers: how many of the first layers have stride 2.
            drqv2: DrQ-v2's form: pixels from -0.5 to 0.5, and a ReLU after the last layer too.
        """
        super().__init__()
        self.drqv2, self.centre = drqv2, 0.5 if drqv2 else 0.0
        steps: list[nn.Module] = []
        for layer in range(layers):
            stride = 2 if layer < strided_layers else 1
            steps += [nn.Conv2d(channels if layer == 0 else filters, filters, 3, stride), nn.ReLU()]
        # The reference has no ReLU after the last layer.
        self.layers = nn.Sequential(*(steps if drqv2 else steps[:-1]))
        self.input_shape = (channels, image_size, image_size)
        side = output_size(image_size, layers, strided_layers)
        self.maps = (filters, side, side)
        self.features = filters * side**2
        self.apply(initialise)
        # Pixels whose channels lie together: what wide registers and tensor cores want.
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    # A seam: `speed` may assign a faster one over it.
    def forward(self, images: Tensor) -> Tensor:
        """(B, 9, H, W) in [0, 1] -> (B, features)."""
        if images.device.type == "cpu":  # once: the library would do it forward and backward
            images = images.contiguous(memory_format=torch.channels_last)
        return self.layers(images - self.centre if self.centre else images).flatten(1)
