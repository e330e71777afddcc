"""What a data folder has, by the names that the environments and the image bank look for."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from svea.core import files
from svea.core.errors import StorageError, UserError
from svea.data import clips
from svea.data.decode import MOST_BYTES, PICTURE_ENDINGS, VIDEO_ENDINGS
from svea.data.folders import CLIP_SETS, PICTURE_FOLDERS


@dataclass(frozen=True)
class Part:
    """The data of one mode or augmentation, as far as a folder has it."""

    name: str
    unit: str
    """What it consists of: `clips` or `pictures`."""
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
        return [*(_find_clips(root, name) for name in CLIP_SETS), _find_pictures(root)]


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
    with storage_errors(path), files.open_plain(path, MOST_BYTES) as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turn a system error on a file into a `StorageError` that names it."""
    try:
        yield
    except OSError as error:
        where = error.filename or path
        raise StorageError(f"cannot read or write {where}: {error.strerror or error}.") from error


def _find_clips(root: Path, name: str) -> Part:
    wanted = CLIP_SETS[name]
    try:
        found = clips.find(name, root, None)
    except UserError:  # none at all
        found = clips.Clips("", (), (), wanted.names)
    purpose = f"mode {name}"
    if name == "distracting_cs":
        purpose += " (the first 2 to 8 clips; all from intensity 0.3 on)"
    return Part(name, "clips", purpose, wanted.source, found.files, len(found), found.missing)


def _find_pictures(root: Path) -> Part:
    folder = find_picture_folder(root)
    count = sum(1 for _ in pictures_below(folder)) if folder else 0
    files = (folder,) if folder and count else ()
    purpose = "augmentation overlay (Places365 in the paper)"
    return Part("overlay", "pictures", purpose, "places365-val", files, count)


def find_picture_folder(root: Path) -> Path | None:
    """Where a data folder has its pictures for overlay, if it has any."""
    return next((root / name for name in PICTURE_FOLDERS if (root / name).is_dir()), None)


def pictures_below(folder: Path) -> Iterator[Path]:
    """The pictures and videos that overlay may read, in the order of their names."""
    endings = (*PICTURE_ENDINGS, *VIDEO_ENDINGS)
    for parent, _, names in sorted(os.walk(folder)):  # names only: no stat of each of 1.8 M files
        yield from (Path(parent, name) for name in sorted(names) if name.lower().endswith(endings))
