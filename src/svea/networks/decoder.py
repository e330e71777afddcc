"""A decoder from a small vector to maps of an observation's size."""

from __future__ import annotations

from torch import Tensor, nn

MAPS = 32


class AttributionDecoder(nn.Module):
    """SGQN's: from projected features and an action to a logit for each value of an observation.

    A quarter of the size first, doubled twice; PyTorch's own initialisation, as in the reference.
    With 100 features, 6 actions and 84 pixels it has 1,625,961 parameters.

    Example:
        >>> import torch
        >>> AttributionDecoder(106)(torch.rand(2, 106)).shape
        torch.Size([2, 9, 84, 84])
    """

    def __init__(self, inputs: int, channels: int = 9, image_size: int = 84) -> None:
        """Build the network.

        Args:
            inputs: features and actions together.
            channels: of the observation.
            image_size: height and width of the observation.
        """
        super().__init__()
        self.side = -(-image_size // 4)
        self.linear = nn.Linear(inputs, MAPS * self.side**2)
        self.layers = nn.Sequential(
            nn.ReLU(),
            nn.Conv2d(MAPS, 128, 3, padding=1),
            nn.Upsample(scale_factor=2),
            nn.ReLU(),
            nn.Conv2d(128, 64, 3, padding=1),
            nn.Upsample(size=(image_size, image_size)),  # twice, if its quarter is whole
            nn.ReLU(),
            nn.Conv2d(64, channels, 3, padding=1),
        )

    def forward(self, features: Tensor) -> Tensor:
        """(B, inputs) -> logits (B, channels, H, W)."""
        return self.layers(self.linear(features).unflatten(1, (MAPS, self.side, self.side)))
