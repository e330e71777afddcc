"""Modes as a user writes them, in a module of their own."""

from typing import Any

import numpy as np

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


class DimmedMode(PictureMode):
    """Needs what nothing gives it."""

    def __init__(self, factor: float) -> None:
        super().__init__("dimmed")


class FloatMode(PictureMode):
    """Forgets to return bytes."""

    def compose(self, picture: np.ndarray) -> np.ndarray:
        return picture / 2


NOT_A_MODE = 3
