"""What a data folder has, by the names that the environments and the image bank look for."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from svea.data import clips
from svea.envs.looks import distracting, videos
from svea.envs.looks.colors import SPREAD
from svea.errors import StorageError, UserError

PICTURE_FOLDERS = ("places365_standard/train", "places365_standard/val", "photos")
"""Where pictures for overlay may lie; the first that exists is used."""

SMALLEST_SIDE = 32
"""Overlay skips pictures with a shorter side."""


@dataclass(frozen=True)
class Part:
    """The data of one mode or augmentation, as far as a folder has it."""

    name: str
    unit: str
    """What it consists of: `tables`, `clips` or `pictures`."""
    needed_for: str
    source: str
    """The name of the download that has it."""
    files: tuple[Path, ...]
    """Files, or folders of frames; the one folder of all pictures."""
    count: int
    missing: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """In words, such as `6 of 10 clips`."""
        of = f" of {self.count + len(self.missing)}" if self.unit != "pictures" else ""
        return f"{self.count}{of} {self.unit}" if self.count else f"no {self.unit}"


def inventory(root: Path) -> list[Part]:
    """Find what a data folder has, by the names that the loaders use; nothing is decoded.

    Raises:
        StorageError: A folder in it cannot be read.
    """
    with storage_errors(root):
        return [
            *(_find_table(root, name) for name in SPREAD),
            *(_find_videos(root, name) for name in videos.CLIPS),
            _find_davis(root),
            _find_pictures(root),
        ]


def content_sha256(path: Path) -> str:
    """A file's sha256; of a folder, that of what `sha256sum` prints for its pictures.

    Raises:
        StorageError: It cannot be read.
    """
    if not path.is_dir():
        return _file_sha256(path)
    total = hashlib.sha256()
    for file in pictures_below(path):
        if file.is_file():  # a pipe would block
            name = file.relative_to(path).as_posix()
            total.update(f"{_file_sha256(file)}  {name}\n".encode())
    return total.hexdigest()


def _file_sha256(path: Path) -> str:
    with storage_errors(path), path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Put disk trouble into words."""
    try:
        yield
    except OSError as error:
        where = error.filename or path
        raise StorageError(f"cannot read or write {where}: {error.strerror or error}.") from error


def _find_table(root: Path, name: str) -> Part:
    path = root / "dmcgb" / f"{name}.json"
    there = path.is_file()
    files, missing = ((path,), ()) if there else ((), (path.name,))
    return Part(name, "tables", f"mode {name}", "dmcgb", files, int(there), missing)


def _find_videos(root: Path, name: str) -> Part:
    every = tuple(f"video{number}" for number in range(videos.CLIPS[name]))
    found = _find(lambda: videos.find_clips(name, root, None), every)
    return Part(name, "clips", f"mode {name}", "dmcgb", found.files, len(found), found.missing)


def _find_davis(root: Path) -> Part:
    every = max(distracting.INTENSITIES)
    found = _find(lambda: distracting.find_clips(every, root, None), distracting.DAVIS)
    purpose = "mode distracting_cs (the first 2 to 8 clips; all from intensity 0.3 on)"
    return Part("distracting_cs", "clips", purpose, "davis", found.files, len(found), found.missing)


def _find(find: Callable[[], clips.Clips], every: tuple[str, ...]) -> clips.Clips:
    """What a mode finds; it raises when that is nothing."""
    try:
        return find()
    except UserError:
        return clips.Clips("", (), (), every)


def _find_pictures(root: Path) -> Part:
    folder = next((root / name for name in PICTURE_FOLDERS if (root / name).is_dir()), None)
    count = sum(1 for _ in pictures_below(folder)) if folder else 0
    files = (folder,) if folder and count else ()
    purpose = "augmentation overlay (Places365 in the paper)"
    return Part("overlay", "pictures", purpose, "places365-val", files, count)


def pictures_below(folder: Path) -> Iterator[Path]:
    """The pictures and videos that overlay may read, in the order of their names."""
    endings = (*clips.PICTURE_ENDINGS, *clips.VIDEO_ENDINGS)
    for parent, _, names in sorted(os.walk(folder)):
        yield from (Path(parent, name) for name in sorted(names) if name.lower().endswith(endings))
