"""From and to maps of an observation's size: MaDi's masker and SGQN's decoder."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from svea.core.errors import UserError
from svea.networks.trunk import Trunk, initialise

COLOURS = 3  # channels of a frame


class Masker(nn.Module):
    """Multiplies every pixel of every frame by a number in (0, 1) that it computes from the frame.

    ``Masker()`` is the one of MaDi (Grooten et al., 2024): three 3x3 convolutions at full
    resolution, 10,433 parameters. Frames of a stack are masked one by one, by the same weights.
    84 pixels cost 219 million multiplications per observation, 2.4 times the paper's CNN.

    Example:
        >>> images = torch.rand(2, 9, 84, 84)
        >>> Masker()(images).shape, Masker().masks(images).shape
        (torch.Size([2, 9, 84, 84]), torch.Size([2, 3, 84, 84]))
    """

    def __init__(self, filters: int = 32, encoder: Trunk | None = None) -> None:
        """Build the network.

        Args:
            filters: of the first two convolutions.
            encoder: that it will stand before; refused if it does not take RGB frames.
        """
        super().__init__()
        if encoder is not None and encoder.input_shape[0] % COLOURS:
            raise UserError(
                f"a masker stands before an encoder of RGB frames, {COLOURS} channels each, but "
                f"{type(encoder).__name__} takes {encoder.input_shape[0]} channels; allowed: a "
                f"multiple of {COLOURS}. Give it frames of three channels, or leave the masker out"
            )
        self.layers = nn.Sequential(
            nn.Conv2d(COLOURS, filters, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(filters, filters, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(filters, 1, 3, padding=1),
        )
        self.apply(initialise)

    def masks(self, images: Tensor) -> Tensor:
        """Stacked frames (B, 3k, H, W) in [0, 1] -> what is kept of their pixels, (B, k, H, W)."""
        frames = images.unflatten(1, (-1, COLOURS))  # (B, k, 3, H, W)
        kept = torch.sigmoid(self.layers(frames.flatten(0, 1)))  # (B*k, 1, H, W)
        return kept.unflatten(0, frames.shape[:2]).squeeze(2)

    def forward(self, images: Tensor) -> Tensor:
        """Stacked frames (B, 3k, H, W) in [0, 1] -> the same, masked."""
        return (images.unflatten(1, (-1, COLOURS)) * self.masks(images)[:, :, None]).flatten(1, 2)


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
