"""The masker of MaDi: how much of every pixel an encoder gets to see."""

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
