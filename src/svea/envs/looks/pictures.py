"""`picture_colors` and `picture_video`: looks that change the drawn picture alone.

They need no simulated scene, so any environment can be tested in them, also a user's own.
"""

from pathlib import Path

import numpy as np

from svea.core.errors import UserError
from svea.data import clips
from svea.envs.looks import Mode, Scene, WorldsMode
from svea.envs.looks.videos import ClipMode, fitted

SETTINGS = 100
"""Colour settings of `picture_colors`, as many as the benchmark has for its colour modes."""

_FACTOR = (0.6, 1.4)  # of brightness, contrast and saturation
_YIQ = np.array([[0.299, 0.587, 0.114], [0.596, -0.274, -0.322], [0.211, -0.523, 0.312]])


class PictureMode(Mode):
    """A look made of the drawn picture: the base of modes that fit any environment.

    The hooks are those of `Mode`. Where svea does not simulate the environment itself, `prepare`
    and `advance` are not called and `scene` is None.
    """

    def begin(self, scene: Scene | None, rng: np.random.Generator) -> None:
        """Choose the look of a new episode."""

    def update(self, scene: Scene | None) -> None:
        """Move on by a decision."""


class PictureColors(PictureMode, WorldsMode):
    """Brightness, contrast, saturation and hue, one of 100 settings per episode."""

    def __init__(self) -> None:
        super().__init__("picture_colors", range(SETTINGS), source="stored", settings=SETTINGS)

    def begin(self, scene: Scene | None, rng: np.random.Generator) -> None:
        """Take the episode's setting."""
        self._matrix, self._offset = color_setting(self.next_world(rng))

    def compose(self, picture: np.ndarray) -> np.ndarray:
        """Change the colours of every pixel alike."""
        changed = picture.reshape(-1, 3) @ self._matrix.T + self._offset
        return np.rint(changed.clip(0, 255)).astype(np.uint8).reshape(picture.shape)


def color_setting(world: int) -> tuple[np.ndarray, float]:
    """The matrix and offset that a setting applies to the bytes of a pixel."""
    rng = np.random.default_rng([world, SETTINGS])
    brightness, contrast, saturation = rng.uniform(*_FACTOR, 3)
    matrix = color_matrix(contrast * brightness, saturation, rng.uniform(-np.pi, np.pi))
    return matrix.astype(np.float32), 127.5 * (1 - contrast)


def color_matrix(brightness: float, saturation: float, hue: float) -> np.ndarray:
    """What changes a pixel's channels so; the hue is turned by an angle in radians."""
    turn = saturation * np.array([[np.cos(hue), -np.sin(hue)], [np.sin(hue), np.cos(hue)]])
    chroma = np.eye(3)
    chroma[1:, 1:] = turn  # of the chroma plane; the luma stays
    matrix: np.ndarray = brightness * np.linalg.inv(_YIQ) @ chroma @ _YIQ
    return matrix


class PictureVideo(ClipMode, PictureMode):
    """A video laid over the whole picture, one clip per episode, a frame per decision.

    Frames are resampled as the benchmark does it, like those of the video modes.
    """

    def __init__(
        self,
        data_dir: Path | None = None,
        *,
        videos: str | Path | None = None,
        weight: float = 0.5,
    ) -> None:
        """Find the clips, those of `video_hard`; `weight` is the video's in the picture, 0 to 1."""
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight <= 1:
            raise UserError(f"weight is {weight!r}; it must be a number from 0 to 1.")
        self._weight = float(weight)
        found = clips.find("video_hard", data_dir, videos)
        super().__init__("picture_video", found, weight=self._weight)

    def compose(self, picture: np.ndarray) -> np.ndarray:
        """Mix the clip's frame, stretched to the picture, into it."""
        frame = fitted(self.frame(picture), picture).astype(np.float32)
        return np.rint((1 - self._weight) * picture + self._weight * frame).astype(np.uint8)
