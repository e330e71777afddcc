"""What a data folder has, by the names that modes and overlay look for, and whether it is sound.

No data is needed: without a data folder, videos and pictures are generated. With one, the paper's
test worlds are there as published. Files are decoded by the modes' own decoder, so what is found
here is what they will find.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from svea.core import files
from svea.core.errors import StorageError, UserError
from svea.data import clips
from svea.data.clips import CLIP_SETS, PICTURE_FOLDERS, existing_folder
from svea.data.decode import MOST_BYTES, PICTURE_ENDINGS, VIDEO_ENDINGS, DecodeError, read_picture

MOST_PICTURES = 50_000  # that are checked, evenly chosen: about five minutes' work
RECORD = "downloads.json"  # where each download came from, and the hashes of its files
RECORD_BYTES = 2**30  # 100 bytes for the hash of each of 1.8 million files, and room


@dataclass(frozen=True)
class Part:
    """The data of one mode or augmentation, as far as a folder has it."""

    name: str
    unit: str  # what it consists of: `clips` or `pictures`
    needed_for: str
    source: str  # the name of the download that has it
    files: tuple[Path, ...]  # files, or folders of frames; the one folder of all pictures
    count: int
    missing: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """In words, such as `6 of 10 clips`."""
        of = f" of {self.count + len(self.missing)}" if self.unit != "pictures" else ""
        return f"{self.count}{of} {self.unit}" if self.count else f"no {self.unit}"


@dataclass(frozen=True)
class Finding:
    """A file, or a folder of frames or pictures, that was looked at."""

    name: str  # its path below the data folder
    detail: str = ""  # what it has, if it is sound
    problem: str = ""


def inventory(root: Path) -> list[Part]:
    """Find what a data folder has, by the names that the loaders use; nothing is decoded."""
    with files.reading(root):
        return [*(_find_clips(root, name) for name in CLIP_SETS), _find_pictures(root)]


def check(folder: Path, on_file: Callable[[Path], None] = lambda path: None) -> Iterator[Finding]:
    """Decode and hash everything that svea would read in a data folder.

    `on_file` is called with each clip and picture that was looked at. A UserError if it is not a
    folder, or has nothing that svea reads.
    """
    root = existing_folder(folder, "FOLDER")
    parts = inventory(root)
    if not any(part.count for part in parts):
        raise UserError(
            f"nothing in {root} that svea reads. docs/data.md shows the layout; "
            "`svea data get NAME FOLDER` makes it."
        )
    known: dict[str, str] = {}
    try:
        for entry in read_record(root).values():
            known |= entry["files"]
    except StorageError as error:
        yield Finding(RECORD, problem=str(error))
    for part in parts:
        look = _check_clips if part.unit == "clips" else _check_pictures
        for path, detail, problem in look(part, on_file):
            yield _finding(path.relative_to(root).as_posix(), path, detail, problem, known)


def unread(root: Path) -> list[Path]:
    """Files that lie among the clips and have no name that a mode looks for."""
    read = {path for part in inventory(root) for path in part.files}
    places = (root / "dmcgb/video_easy", root / "dmcgb/video_hard", root / "davis")
    lying = [path for place in places if place.is_dir() for path in sorted(place.iterdir())]
    return [path for path in lying if path not in read and path.suffix.lower() in VIDEO_ENDINGS]


def read_record(root: Path) -> dict[str, Any]:
    """What is known of earlier downloads into a data folder."""
    path = root / RECORD
    try:
        record = files.read_json(path, RECORD_BYTES)
        if not all(isinstance(entry["files"], dict) for entry in record.values()):
            raise ValueError("no table of files")
        return dict(record)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise StorageError(
            f"{path} is damaged ({error!r}); delete it, and hashes will not be compared."
        ) from error


def content_sha256(path: Path) -> str:
    """A file's sha256; of a folder, that of what `sha256sum` prints for its pictures."""
    with files.reading(path):
        if not path.is_dir():
            return files.file_sha256(path, MOST_BYTES)
        pictures = [file for file in pictures_below(path) if file.is_file()]  # a pipe would block
        hashes = [files.file_sha256(file, MOST_BYTES) for file in pictures]
        named = zip(hashes, (file.relative_to(path).as_posix() for file in pictures), strict=True)
        return files.sha256("".join(f"{sha256}  {name}\n" for sha256, name in named))


def find_picture_folder(root: Path) -> Path | None:
    """Where a data folder has its pictures for overlay, if it has any."""
    return next((root / name for name in PICTURE_FOLDERS if (root / name).is_dir()), None)


def pictures_below(folder: Path) -> Iterator[Path]:
    """The pictures and videos that overlay may read, in the order of their names."""
    endings = (*PICTURE_ENDINGS, *VIDEO_ENDINGS)
    for parent, _, names in sorted(os.walk(folder)):  # names only: no stat of each of 1.8 M files
        yield from (Path(parent, name) for name in sorted(names) if name.lower().endswith(endings))


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


Looked = Iterator[tuple[Path, str, str]]
"""A file or folder, what it has, and what is wrong with it, if anything is."""


def _check_clips(part: Part, on_file: Callable[[Path], None]) -> Looked:
    for path in part.files:
        yield path, *_decoded(path)
        on_file(path)


def _decoded(path: Path) -> tuple[str, str]:
    """What a clip or a picture has, within the limits that the modes set; or what is wrong."""
    try:
        if path.suffix.lower() in PICTURE_ENDINGS:
            read_picture(path)
            return "a picture", ""
        return f"{len(clips.Clips('', ('',), (path,)).open(0))} frames", ""
    except (UserError, DecodeError) as error:
        return "", str(error)


def _check_pictures(part: Part, on_file: Callable[[Path], None]) -> Looked:
    """Decode the pictures of a folder: a line for each problem, and one for the rest."""
    for folder in part.files:
        every = list(pictures_below(folder))
        stride = -(-len(every) // MOST_PICTURES)
        chosen, good = every[::stride], 0
        for path in chosen:
            if problem := _decoded(path)[1]:
                yield path, "", problem
            good += not problem
            on_file(path)
        of = f", {len(chosen)} of {len(every)} checked" if stride > 1 else ""
        yield folder, f"{good} sound pictures{of}", "" if good else "has no sound picture"


def _finding(name: str, path: Path, detail: str, problem: str, known: dict[str, str]) -> Finding:
    """With its hash, compared with that of the download and the benchmark's."""
    if problem:
        return Finding(name, problem=problem)
    sha256, recorded = content_sha256(path), known.get(name)
    if recorded not in (None, sha256):
        changed = f"has changed since it was downloaded: sha256 {sha256}, recorded {recorded}"
        return Finding(name, problem=changed)
    standing = "as downloaded" if recorded else "unverified"
    is_clip = name.startswith("dmcgb/video_")
    if is_clip and (own := clips.published_hashes(path.parent.name).get(path.stem)):
        standing += f", {'' if sha256.startswith(own) else 'not '}the benchmark's own"
    return Finding(name, f"{detail}  sha256 {sha256}  {standing}")
