"""The album of a report: videos and pictures of runs, as many as a page can carry.

Pictures are re-encoded small; videos go in as they are. What is damaged or does not fit is named.
"""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path

from PIL import Image

from svea.evidence.read import Run
from svea.evidence.report.markup import Markup, element, join
from svea.evidence.results import Group
from svea.words import number, plural

VIDEO_BYTES = 48_000_000
PICTURE_BYTES = 6_000_000
"""Beyond these, files are named, not embedded: browsers choke on larger pages."""

MOST_RUNS = 30
"""Runs in the album: the first seed of every setting, then the second ones, and so on."""

PICTURE_WIDTH = 960  # six frames of 160 pixels: enough to see, and a third of the bytes of 240


class Album:
    """The media files of runs, read and encoded once.

    Attributes:
        left_out: What is not in the album, and why.
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
                f"or some; they lie in media/ and analysis/ of {rest[0]}"
                + (" and others" if len(rest) > 1 else "")
            )

    def gallery(self) -> Markup | None:
        """Videos and sample frames of every run in the album."""
        lead = "What the agent sees and does: videos of the final policy, and sample frames."
        return self._section("Gallery", lead, "modes", self._mode_figures)

    def analyses(self) -> Markup | None:
        """The pictures that `svea analyze` wrote."""
        lead = "Where the encoder looks: what in the picture its answer depends on."
        return self._section("Saliency", lead, "modes pictures", self._analysis_figures)

    def _section(
        self, title: str, lead: str, kind: str, figures_of: Callable[[Run], Iterator[Markup]]
    ) -> Markup | None:
        """A block per group: the first seed open, the others folded."""
        blocks = []
        for group in self._groups:
            shown = [(run, list(figures_of(run))) for run in group.runs]
            shown = [(run, figures) for run, figures in shown if figures]
            if shown:
                blocks.append(_block(group, shown, kind))
        if not blocks:
            return None
        return join([element("h2", title), element("p", lead, class_="lead"), *blocks])

    def _mode_figures(self, run: Run) -> Iterator[Markup]:
        """The video and frames of each mode, with the return below."""
        videos, frames = run.media(".mp4"), run.media(".png")
        for mode in sorted({*videos, *frames}, key=lambda m: (m != "train", m)):
            files = [file for file in (videos.get(mode), frames.get(mode)) if file in self._encoded]
            if files:
                returns = run.final_returns(mode)
                mean = f": mean return {number(returns.mean())}" if returns.size else ""
                yield self._figure(mode, files, f"{mode}{mean}")

    def _analysis_figures(self, run: Run) -> Iterator[Markup]:
        """The pictures of analyses."""
        for file in _analysis_pictures(run):
            if file in self._encoded:
                yield self._figure(file.stem, [file], file.stem.replace("-", " "))

    def _figure(self, name: str, files: Sequence[Path | None], caption: str) -> Markup:
        """Files one above the other."""
        parts = []
        for file in files:
            assert file is not None
            source = self._encoded[file]
            if file.suffix == ".mp4":
                switches = dict.fromkeys(("controls", "muted", "loop", "playsinline"), "")
                switches |= {"preload": "metadata", "title": name}
                parts.append(element("video", src=source, **switches))
            else:
                alt = html.escape(f"frames in {name}")
                parts.append(Markup(f'<img alt="{alt}" loading="lazy" src="{source}">'))
        return element("figure", *parts, element("figcaption", caption))

    def _add(self, file: Path, run: Run) -> bool:
        """Encode a file; False when there is no room. A damaged one is named and passed over."""
        try:
            kind, content = _video(file) if file.suffix == ".mp4" else _picture(file)
        except (OSError, ValueError, Image.DecompressionBombError) as error:
            name = f"{file.parent.name}/{file.name} of {run.name}"
            self.left_out.append(f"{name} cannot be read ({error}); it is left out")
            return True
        if len(content) > self._room[file.suffix]:
            return False
        self._room[file.suffix] -= len(content)
        self._encoded[file] = f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}"
        return True


def _block(group: Group, shown: Sequence[tuple[Run, list[Markup]]], kind: str) -> Markup:
    """The pictures of one group."""
    seeds = []
    for place, (run, figures) in enumerate(shown):
        seed = f"seed {run.seed}" if run.seed is not None else run.name
        grid = element("div", *figures, class_=kind)
        opened = "" if place == 0 else None
        seeds.append(element("details", element("summary", seed), grid, open=opened))
    return element(
        "div",
        element("h3", f"{group.task} · {group.label}"),
        *seeds,
        class_="gallery panel",
        data_task=group.task,
        data_method=group.method,
    )


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
    return sorted((run.folder / "analysis").glob("*.png"))


def _picture(file: Path) -> tuple[str, bytes]:
    """A picture as JPEG: about a fifth of a PNG, and no wider than it is shown."""
    with Image.open(file, formats=("PNG",)) as opened:  # what svea writes; a folder may be anyone's
        picture = opened.convert("RGB")
    if picture.width > PICTURE_WIDTH:
        size = (PICTURE_WIDTH, max(1, picture.height * PICTURE_WIDTH // picture.width))
        picture = picture.resize(size, Image.Resampling.BOX)
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=80)
    return "image/jpeg", buffer.getvalue()


def _video(file: Path) -> tuple[str, bytes]:
    """A video as it is, if it is a whole MP4: its boxes fill the file, and an index is there."""
    content = file.read_bytes()
    place, kinds = 0, []
    while place + 8 <= len(content):
        size = int.from_bytes(content[place : place + 4])
        kinds.append(content[place + 4 : place + 8])
        if size == 1:  # a box of more than 4 GB has its size behind its name
            size = int.from_bytes(content[place + 8 : place + 16])
        place = place + size if size >= 8 else len(content) + 1
    if place != len(content) or kinds[:1] != [b"ftyp"] or b"moov" not in kinds:
        raise ValueError("not a whole MP4")
    return "video/mp4", content
