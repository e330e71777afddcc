"""Modes and augmentations as a user writes them, in a module of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from svea.augment import register
from svea.envs import Mode, PictureMode


class NightMode(PictureMode):
    """A third of the brightness, with an offset of each episode's own."""

    def __init__(self, name: str = "night") -> None:
        super().__init__(name)

    def begin(self, scene: Any, rng: np.random.Generator) -> None:
        self.offset = int(rng.integers(100))

    def compose(self, picture: np.ndarray) -> np.ndarray:
        return picture // 3 + np.uint8(self.offset)


class SceneMode(Mode):
    """Changes the simulated scene."""


class FloatMode(PictureMode):
    """Forgets to return bytes."""

    def compose(self, picture: np.ndarray) -> np.ndarray:
        return picture / 2


NOT_A_MODE = 3


def draw_gamma(x: torch.Tensor, generator: torch.Generator | None = None) -> dict[str, Any]:
    return {"exponent": 0.5 + torch.rand(len(x), generator=generator, device=x.device)}


@register(draw_gamma)
def own_gamma(x: torch.Tensor, *, exponent: torch.Tensor) -> torch.Tensor:
    return x ** exponent.to(x.dtype).view(-1, 1, 1, 1)


def own_dim(x: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
    """A plain function, without a draw."""
    return x / 2
