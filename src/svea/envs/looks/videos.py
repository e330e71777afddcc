"""`video_easy` and `video_hard`: a video behind the agent, by green screen.

The video modes of DMControl-GB (https://github.com/nicklashansen/dmcontrol-generalization-benchmark):
the sky (easy) or sky and floor (hard) are green, and where the drawn picture is green the video
shows. Light, shadows and reflections stay on, so a shaded floor may stay green in places: that is
the benchmark's look. Every decision shows the next frame of the episode's clip, resampled from the
file to the observation as the benchmark does it, bilinear and without smoothing; the video is put
in before pictures are stacked. Pictures of another size, those of `render()`, show a smooth frame.
"""

from pathlib import Path
from typing import Any

import numpy as np

from svea.core.errors import unknown_name
from svea.data import clips
from svea.envs.looks import Scene, WorldsMode
from svea.envs.looks.colors import texture

GREEN = (51, 204, 51)  # (0.2, 0.8, 0.2) in bytes

ORDERS = ("random", "sequential")

_SKY_SIDE = 16  # of one colour: any size looks the same


class ClipMode(WorldsMode):
    """A mode that shows one clip per episode, a frame per decision."""

    _side = 0  # of what is shown of a clip, if not the picture's

    def __init__(self, name: str, found: clips.Clips, **made_with: Any) -> None:
        super().__init__(name, found.worlds, **made_with)
        self._clips, self._decision = found, 0
        self._clip: clips.Clip

    @property
    def provenance(self) -> dict[str, Any]:
        """Where the clips come from, how many there are, their hash, and their sizes."""
        side = self._side or self.image_size
        return super().provenance | self._clips.provenance | {"shown": f"{side} x {side}"}

    def begin(self, scene: Scene | None, rng: np.random.Generator) -> None:
        """Open the episode's clip at its first frame."""
        self._clip = self._clips.open(self.next_world(rng), self.image_size, smooth=False)
        self._decision = 0
        self._clip.frame(0)  # a damaged file is reported by reset, not by a later picture

    def update(self, scene: Scene | None) -> None:
        """Advance to the next frame."""
        self._decision += 1

    def frame(self, picture: np.ndarray) -> np.ndarray:
        """The frame to show in a picture: the benchmark's for agents, a smooth one for others."""
        seen = picture.shape[:2] == (self.image_size, self.image_size)
        return (self._clip if seen else self._clips.open(self._world)).frame(self._decision)


class VideoMode(ClipMode):
    """Shows one clip per episode behind the agent."""

    def __init__(
        self,
        name: str,
        data_dir: Path | None = None,
        *,
        videos: str | Path | None = None,
        order: str = "random",
    ) -> None:
        """Find the clips: the data folder's, or those of `videos` (`svea.data.clips.find`).

        The order `random` takes the clip that the seed of `reset` chooses. `sequential` is the
        benchmark's 1, 2, ..., n - 1, 0 by the resets of this object; an episode then depends on how
        many went before it.
        """
        if order not in ORDERS:
            raise unknown_name("order", order, ORDERS)
        self._order, self._episodes = order, 0
        super().__init__(name, clips.find(name, data_dir, videos), order=order)

    def choose(self, seed: int | None, options: dict[str, Any]) -> None:
        """Take the clip that is asked for, else the seed's or the next in the benchmark's order."""
        self._episodes += 1
        super().choose(seed, options)
        if self._order == "sequential" and options.get("world") is None:
            self._chosen = self._episodes % len(self.worlds)

    def prepare(self, model: Any, domain: str) -> None:
        """Paint sky and, in `video_hard`, floor green."""
        sky = model.tex("skybox").id
        model.tex_width[sky] = model.tex_height[sky] = _SKY_SIDE
        texture(model, sky)[:] = GREEN
        if self.name == "video_hard":
            texture(model, model.tex("grid").id)[:] = GREEN

    def compose(self, picture: np.ndarray) -> np.ndarray:
        """Put the video where the picture is green."""
        return show_behind(picture, self.frame(picture))


def show_behind(picture: np.ndarray, frame: np.ndarray, screen: int = 0) -> np.ndarray:
    """Put a video's frame where the picture is green; with screen 1 blue, with 2 red."""
    shows = is_green(np.roll(picture, -screen, axis=-1) if screen else picture)
    return np.where(shows[..., None], fitted(frame, picture), picture)


def fitted(frame: np.ndarray, picture: np.ndarray) -> np.ndarray:
    """A video's frame, stretched to the picture if need be."""
    from PIL import Image

    if frame.shape == picture.shape:
        return frame
    height, width, _ = picture.shape
    return np.asarray(Image.fromarray(frame).resize((width, height), Image.Resampling.BILINEAR))


def is_green(picture: np.ndarray) -> np.ndarray:
    """Find the green pixels: hue 100 to 185 degrees, saturation from 80 and value from 70 of 255.

    In whole numbers, by the definition of hue between its corners green (120) and cyan (180): 50 µs
    for 84 x 84 pixels, where the benchmark's loop takes 30 ms.
    """
    red, green, blue = picture.transpose(2, 0, 1).astype(np.int16)
    value = np.maximum(np.maximum(red, green), blue)
    chroma = value - np.minimum(np.minimum(red, green), blue)
    from_100 = 3 * (blue - red) >= -chroma  # where green leads: 120 + 60 (blue - red) / chroma
    to_185 = 12 * (green - red) >= 11 * chroma  # where blue leads: 240 + 60 (red - green) / chroma
    hue = np.where(green >= blue, from_100, to_185)
    return hue & (51 * chroma >= 16 * value) & (value >= 70)  # 255 chroma / value >= 80
