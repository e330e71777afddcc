"""Videos and pictures of runs, as many as a page can carry, as data URLs.

Pictures are re-encoded small; videos go in as they are. What is left out is named.
"""

from __future__ import annotations

import base64
import io
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from PIL import Image

from svea.core import files
from svea.core.words import number, plural
from svea.results.groups import Group
from svea.results.read import Run
from svea.runs import layout

VIDEO_BYTES = 48_000_000
PICTURE_BYTES = 6_000_000
"""Beyond these, files are named, not embedded: browsers choke on larger pages."""

MOST_RUNS = 30
"""Runs whose media are shown: the first seed of every setting, then the second ones, and so on."""

PICTURE_WIDTH = 960  # six frames of 160 pixels: enough to see, and a third of the bytes of 240


@dataclass(frozen=True)
class Picture:
    """A video, a picture, or both one above the other, as data URLs."""

    name: str
    caption: str
    video: str = ""
    frames: str = ""


Blocks = list[tuple[Group, list[tuple[Run, list[Picture]]]]]
"""The pictures of each group, seed by seed; what has none is left out."""


class Media:
    """The media files of runs, read and encoded once.

    Attributes:
        left_out: What is not on the page, and why.
    """

    def __init__(self, groups: Sequence[Group]) -> None:
        """Choose and encode.

        Args:
            groups: Whose media; each group's seeds in their order.
        """
        self.left_out: list[str] = []
        self._encoded: dict[Path, str] = {}
        self._groups = groups
        self._room = {".mp4": VIDEO_BYTES, ".png": PICTURE_BYTES}
        too_large: list[Run] = []
        owners = [run for run in _by_seed(groups) if any(_media(run))]
        for run in owners[:MOST_RUNS]:
            for file in _media(run):
                if not self._add(file, run):
                    too_large.append(run)
        rest = [run.name for run in owners[MOST_RUNS:]]
        rest += [name for name in dict.fromkeys(run.name for run in too_large) if name not in rest]
        if rest:
            self.left_out.append(
                f"pictures and videos of {plural(len(rest), 'run')} do not fit into the page, all "
                f"or some; they are in media/ and analysis/ of {rest[0]}"
                + (" and others" if len(rest) > 1 else "")
            )

    def of_modes(self) -> Blocks:
        """Videos and sample frames of the final policy in each mode."""
        return self._blocks(self._modes)

    def of_analyses(self) -> Blocks:
        """The pictures that `svea analyze` wrote."""
        return self._blocks(self._analyses)

    def _blocks(self, pictures_of: Callable[[Run], Iterator[Picture]]) -> Blocks:
        """The pictures of each group that has any."""
        by_group = [
            (group, [(r, list(pictures_of(r))) for r in group.runs]) for group in self._groups
        ]
        blocks = [(group, [seed for seed in seeds if seed[1]]) for group, seeds in by_group]
        return [(group, seeds) for group, seeds in blocks if seeds]

    def _modes(self, run: Run) -> Iterator[Picture]:
        """The video and frames of each mode, with the return below."""
        videos, frames = run.media(".mp4"), run.media(".png")
        for mode in sorted({*videos, *frames}, key=lambda m: (m != "train", m)):
            video, strip = (self._source(files.get(mode)) for files in (videos, frames))
            if video or strip:
                returns = run.final_returns(mode)
                mean = f": mean return {number(returns.mean())}" if returns.size else ""
                mask = "; with the mask: white is kept" if run.mask == "madi" else ""
                yield Picture(mode, f"{mode}{mean}{mask}", video, strip)

    def _analyses(self, run: Run) -> Iterator[Picture]:
        """The pictures of analyses."""
        for file in _analysis_pictures(run):
            if source := self._source(file):
                yield Picture(file.stem, file.stem.replace("-", " "), frames=source)

    def _source(self, file: Path | None) -> str:
        """A file as a data URL; empty where it is not on the page."""
        return self._encoded.get(file, "") if file is not None else ""

    def _add(self, file: Path, run: Run) -> bool:
        """Encode a file; False when there is no room. A damaged one is named and passed over."""
        try:
            is_video = file.suffix == ".mp4"
            if is_video:
                with files.open_plain(file, sys.maxsize) as opened:
                    content = opened.read(self._room[file.suffix] + 1)
            else:
                content = _jpeg(file)
        except (OSError, ValueError, Image.DecompressionBombError) as error:
            name = f"{file.parent.name}/{file.name} of {run.name}"
            self.left_out.append(f"{name} cannot be read ({error}); it is left out")
            return True
        if len(content) > self._room[file.suffix]:
            return False
        kind = "video/mp4" if is_video else "image/jpeg"
        self._room[file.suffix] -= len(content)
        self._encoded[file] = f"data:{kind};base64,{base64.b64encode(content).decode()}"
        return True


def _by_seed(groups: Sequence[Group]) -> list[Run]:
    """The first run of every group, then the second ones, and so on."""
    rounds = zip_longest(*(group.runs for group in groups))
    return [run for row in rounds for run in row if run is not None]


def _media(run: Run) -> Iterator[Path]:
    """Everything a run has to look at, small things first."""
    yield from run.media(".png").values()
    yield from _analysis_pictures(run)
    yield from run.media(".mp4").values()


def _analysis_pictures(run: Run) -> list[Path]:
    """The pictures that `svea analyze` left in a run folder."""
    return sorted((run.folder / layout.ANALYSIS).glob("*.png"))


def _jpeg(file: Path) -> bytes:
    """A picture as JPEG: about a fifth of a PNG, and no wider than it is shown."""
    with (
        files.open_plain(file, layout.PICTURE_BYTES) as content,
        Image.open(content, formats=("PNG",)) as opened,  # what svea writes
    ):
        picture = opened.convert("RGB")
    if picture.width > PICTURE_WIDTH:
        size = (PICTURE_WIDTH, max(1, picture.height * PICTURE_WIDTH // picture.width))
        picture = picture.resize(size, Image.Resampling.BOX)
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=80)
    return buffer.getvalue()
