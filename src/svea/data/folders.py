"""The data folder: which one is used, and where each data set lies in it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from svea.core.errors import UserError

VARIABLE = "SVEA_DATA"
"""The environment variable that names the data folder where no argument does."""

PICTURE_FOLDERS = ("places365_standard/train", "places365_standard/val", "photos")
"""Where the pictures for overlay may lie; the first that exists is used."""

_DAVIS = """
bear bmx-bumps boat boxing-fisheye breakdance-flare bus car-turn cat-girl classic-car color-run
crossing dance-jump dancing disc-jockey dog-agility dog-gooses dogs-scale drift-turn drone elephant
flamingo hike hockey horsejump-low kid-football kite-walk koala lady-running lindy-hop longboard
lucia mallard-fly mallard-water miami-surf motocross-bumps motorbike night-race paragliding
planes-water rallye rhino rollerblade schoolgirls scooter-board scooter-gray sheep skate-park
snowboard soccerball stroller stunt surf swing tennis tractor-sand train tuk-tuk upside-down
varanus-cage walking
"""
DAVIS = tuple(_DAVIS.split())
"""The training clips of DAVIS-2017 in their official order."""


@dataclass(frozen=True)
class ClipSet:
    """The clips that a mode shows."""

    source: str
    """The name of the download that has them."""
    names: tuple[str, ...]
    patterns: tuple[str, ...]
    """Where a clip may lie below the data folder, with `{}` for its name."""


CLIP_SETS = {
    "video_easy": ClipSet(
        "dmcgb", tuple(f"video{n}" for n in range(10)), ("dmcgb/video_easy/{}.mp4",)
    ),
    "video_hard": ClipSet(
        "dmcgb", tuple(f"video{n}" for n in range(100)), ("dmcgb/video_hard/{}.mp4",)
    ),
    "distracting_cs": ClipSet(
        "davis", DAVIS, ("DAVIS/JPEGImages/480p/{}", "davis/{}.mp4", "davis/{}")
    ),
}
"""The benchmark's clips by mode."""


def data_folder(given: str | os.PathLike[str] | None = None) -> Path | None:
    """The data folder: the argument, else the variable `SVEA_DATA`, else None.

    Raises:
        UserError: It does not exist.
    """
    chosen = given if given is not None else os.environ.get(VARIABLE) or None
    if chosen is None:
        return None
    origin = "data_dir" if given is not None else f"the variable {VARIABLE}"
    return existing_folder(chosen, origin)


def existing_folder(folder: str | os.PathLike[str], origin: str) -> Path:
    """A folder that must exist.

    Args:
        folder: Its path.
        origin: What named it, for the error.
    """
    path = Path(folder).expanduser()
    if not path.is_dir():
        raise UserError(
            f"{origin} is {os.fspath(folder)!r}, which is not a folder; name one that exists, or "
            "make one with `svea data get NAME FOLDER`."
        )
    return path
