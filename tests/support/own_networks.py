"""Encoders and methods as a user writes them, in a module of their own."""

import torch
from torch import Tensor, nn

from svea.methods import Method
from svea.recipes import Recipe


class Small(nn.Module):
    """Two convolutions; a ReLU as a module, so that guided gradients pass through it."""

    def __init__(self, channels: int, image_size: int, width: int = 4) -> None:
        super().__init__()
        self.image_size = image_size
        self.layers = nn.Sequential(
            nn.Conv2d(channels, width, 5, 3), nn.ReLU(), nn.Conv2d(width, width, 3), nn.Flatten()
        )

    def forward(self, images: Tensor) -> Tensor:
        return self.layers(images)


def with_statistics() -> nn.Module:
    """Has numbers that change with what it sees."""
    return nn.Sequential(nn.BatchNorm2d(9), nn.Flatten(), nn.Linear(9 * 16 * 16, 5))


class Pictures(nn.Module):
    """Forgets to flatten."""

    def forward(self, images: Tensor) -> Tensor:
        return images


class Depth(nn.Module):
    """Takes frames with a fourth channel."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(4, 2, 3), nn.Flatten())

    def forward(self, images: Tensor) -> Tensor:
        return self.layers(images)


class SaysDepth(Depth):
    """Says so, and would take others."""

    input_shape = (4, 16, 16)

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images[:, :4])


class TooDeep(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        return nn.functional.conv2d(images, torch.zeros(1, 9, 30, 30))


class Needs(nn.Module):
    def __init__(self, depth: int) -> None:
        super().__init__()


def a_number() -> int:
    return 3


strong_policy = Method(
    Recipe((("weak", "alpha"), ("strong", "beta")), "weak", ("strong",), policy_q="weak"),
    augment="conv",
)
small_svea = Method("svea", augment="conv|cutout", encoder="own_networks:Small")
misspelt = Method("svae")
NOT_A_METHOD = 3
