"""Random resized crops of pictures on a CPU (crops.c), for the overlays.

One after another by torch's own operator they take as long as the rest of a small update.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from svea.augment.images import Crops, ImageBank
from svea.kernels.cpu import call, library


def resized_crops(pictures: Tensor, crops: Crops, height: int, width: int) -> Tensor:
    """Crops of uint8 (N, 3, side, side) -> float32 (count, 3, height, width) in [0, 1].

    It agrees with `images.resize_each` to one level of 255.
    """
    count, side = len(crops.chosen), pictures.shape[-1]
    y = torch.empty(count, 3, height, width)
    *places, mirrored = (each.contiguous() for each in crops)
    given = (pictures, *places, mirrored.view(torch.uint8), y, count, side, height, width)
    call(library().resize_crops, count, *given)
    return y


@dataclass(frozen=True)
class PicturesInC:
    """An `ImageBank` whose draws are resized by the kernel; it draws the same crops."""

    bank: ImageBank

    @property
    def side(self) -> int:
        """Height and width of the pictures in pixels."""
        return self.bank.side

    def draw(
        self, count: int, height: int, width: int, generator: Generator | None = None
    ) -> Tensor:
        """Draw random resized crops of random pictures."""
        crops = self.bank.crops(count, generator)
        return resized_crops(self.bank.pictures, crops, height, width)
