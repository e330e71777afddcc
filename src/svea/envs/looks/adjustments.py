"""What can be changed by hand on top of a look: values with bounds, colours, clips by name."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from svea.core.errors import UserError, between
from svea.data import clips
from svea.data.folders import CLIP_SETS

COLOR = re.compile(r"#[0-9a-f]{6}|")
"""A colour as pages write it, #rrggbb, or nothing: the mode's own."""

Clip = tuple[clips.Clips, int]


@dataclass(frozen=True)
class Adjustments:
    """What is changed on top of a mode; the defaults change nothing."""

    body: str = ""
    """Colour of the agent."""
    floor: str = ""
    sky: str = ""
    video: str = ""
    """The name of a clip that is shown behind the agent (`find_clips`)."""
    video_on_floor: bool = True
    video_speed: Annotated[float, between(0, 4)] = 1.0
    """Frames per decision."""
    roll: Annotated[float, between(-180, 180)] = 0.0
    """Of the camera, in degrees."""
    shift_x: Annotated[float, between(-1, 1)] = 0.0
    """Of the camera to its right, as a share of its distance to the agent."""
    shift_y: Annotated[float, between(-1, 1)] = 0.0
    light: Annotated[float, between(0, 3)] = 1.0
    """Factor of all lights."""
    light_tilt: Annotated[float, between(-90, 90)] = 0.0
    """Turns the lights around the agent, to its left or right in the picture, in degrees."""
    noise: Annotated[float, between(0, 0.5)] = 0.0
    """Standard deviation of Gaussian noise on every pixel, of 1."""
    drop: Annotated[float, between(0, 0.95)] = 0.0
    """How often the agent sees the last frame again instead of the new one."""

    @property
    def paint(self) -> tuple[Any, ...]:
        """What textures depend on."""
        return self.floor, self.sky, bool(self.video), self.video and self.video_on_floor


NEUTRAL = Adjustments()


def find_clips(data_dir: Path | None) -> dict[str, Clip]:
    """The clips that can be shown behind the agent, by name: generated ones and the data folder's.

    A page chooses among these names; it never names a file.
    """
    generated = clips.find("video_easy", None, clips.PROCEDURAL)
    found: dict[str, Clip] = {f"generated/{k}": (generated, k) for k in range(len(generated))}
    for name in CLIP_SETS if data_dir is not None else ():
        try:
            own = clips.find(name, data_dir, None)
        except UserError:  # the folder has none of this set
            continue
        found |= {f"{name}/{clip}": (own, k) for k, clip in enumerate(own.names)}
    return found


def channels(color: str) -> list[float]:
    """A colour #rrggbb as channels in [0, 1].

    >>> channels("#ff0080")
    [1.0, 0.0, 0.5019607843137255]
    """
    return [int(color[k : k + 2], 16) / 255 for k in (1, 3, 5)]


def to_text(color: Any) -> str:
    """Channels in [0, 1] as #rrggbb.

    >>> to_text((1.0, 0.0, 0.502))
    '#ff0080'
    """
    return "#" + "".join(f"{round(255 * float(each)):02x}" for each in color)
