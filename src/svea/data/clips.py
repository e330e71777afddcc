"""Where the moving backgrounds come from: video files, folders of frames, or the generator.

A file is decoded once for each size it is shown at, stretched to a square as the benchmarks do, by
a thread that runs ahead of the episode: a reset waits for the first frames only. What was decoded
is kept for the next episode, at most `MOST_BYTES` per process (plus the clips that are on show). At
most `MOST_FRAMES` frames of a file are used: 21 MB at 84 pixels.

The data folder: which one is used, and where each data set lies in it.
"""

import dataclasses
import functools
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from svea.core import files
from svea.core.errors import UserError
from svea.data import decode
from svea.data.decode import (
    PICTURE_ENDINGS,
    SECONDS,
    SIDE,
    VIDEO_ENDINGS,
    DecodeError,
    read_frame,
    read_video,
    stored_size,
)
from svea.data.ffmpeg import FfmpegError
from svea.data.procedural import VERSION, ProceduralClip, procedural_clip

VARIABLE = "SVEA_DATA"  # the environment variable that names the data folder where no argument does

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
DAVIS = tuple(_DAVIS.split())  # the training clips of DAVIS-2017 in their official order


@dataclass(frozen=True)
class ClipSet:
    """The clips that a mode shows."""

    source: str  # the name of the download that has them
    names: tuple[str, ...]
    patterns: tuple[str, ...]  # where a clip may lie below the data folder, with `{}` for its name


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
    """The data folder, which must exist: the argument, else the variable `SVEA_DATA`, else None."""
    if given is not None:
        return existing_folder(given, "data_dir")
    named = os.environ.get(VARIABLE)
    return existing_folder(named, f"the variable {VARIABLE}") if named else None


def existing_folder(
    folder: str | os.PathLike[str],
    origin: str,
    cure: str = "name one that exists, or make one with `svea data get NAME FOLDER`",
) -> Path:
    """A folder that must exist; the error says what named it (the origin), and the cure."""
    path = Path(folder).expanduser()
    if not path.is_dir():
        raise UserError(f"{origin} is {os.fspath(folder)!r}, which is not a folder; {cure}.")
    return path


MOST_FRAMES = 1000
MOST_BYTES = 256 * 2**20
PROCEDURAL = "procedural"  # the name of the generated clips, where a folder is expected

DMCGB = "dmcgb"
RECODED, NOT_IDENTIFIED = f"{DMCGB}, re-coded", f"{DMCGB}, clips not identified"
"""Sources of clips that have the benchmark's names, and are not, or not known to be, its files."""

HASHES = Path(__file__).with_name("dmcgb.json")
"""The beginnings of the SHA-256 of the benchmark's files by mode and number; empty where the file
has not been at hand (video_easy 3, 4, 5 and 7)."""

_FEWEST_FRAMES = 2


@dataclass(frozen=True)
class Clips:
    """The clips of a mode: files that were found, or a number of generated ones."""

    source: str  # `procedural`, the benchmark's name, or the folder's
    names: tuple[str, ...]
    files: tuple[Path, ...] = ()  # empty when the clips are generated
    missing: tuple[str, ...] = ()  # clips of the benchmark that the data folder lacks
    published: tuple[str, ...] = ()
    """Of a set with known hashes, that of each file, or nothing where it is not known."""

    def __len__(self) -> int:
        return len(self.names)

    @property
    def worlds(self) -> tuple[str, ...]:
        """What records call each clip: its name, or the number of a generated one."""
        generated = (f"{PROCEDURAL} {number}" for number in range(len(self)))
        return self.names if self.files else tuple(generated)

    def open(self, index: int, side: int = SIDE, smooth: bool = True) -> "Clip":
        """Make a clip, or begin to decode it; at once when it was decoded before.

        The side of its frames is in pixels; generated ones are always at `SIDE`. Files are
        `smooth` when they are scaled, or shown as the benchmark does (`decode.resample`).
        """
        if not self.files:
            return procedural_clip(self.names[index], index)
        return _open_file(self.files[index], side, smooth)

    @property
    def provenance(self) -> dict[str, Any]:
        """The source, how many clips of how many, which are missing, and of the rest size and hash.

        Sizes are those of mp4 files and of pictures; other files do not tell theirs cheaply.
        """
        found: dict[str, Any] = {"source": self.source, "clips": len(self)}
        if not self.files:
            return found | {"version": VERSION}
        if self.missing:
            found |= {"of": len(self) + len(self.missing), "missing": list(self.missing)}
        every, own, hashes = zip(
            *(_stored(file, *_state(file)) for file in self.files), strict=True
        )
        if sizes := sorted(filter(None, set(every))):
            found |= {"stored": [f"{width} x {height}" for width, height in sizes]}
        if self.published:
            found |= self._identified(own)
        return found | {"sha256": _sha256_of(self.names, hashes)}

    def _identified(self, hashes: Sequence[str]) -> dict[str, Any]:
        """How many of a benchmark's files these are by their hashes, and what to call the rest."""
        known = [bool(start) for start in self.published]
        same = [
            bool(start) and one.startswith(start)
            for start, one in zip(self.published, hashes, strict=True)
        ]
        source = self.source if all(same) else NOT_IDENTIFIED
        return {"source": source if same == known else RECODED, "identified": sum(same)}


def find(
    name: str, data_dir: Path | None, videos: str | Path | None, first: int | None = None
) -> Clips:
    """The clips of a mode, or the first of them: the user's, the benchmark's, or generated ones.

    `videos` is a folder of the user's own videos or folders of frames, or `procedural`; it beats
    the data folder. Without either, clips are generated.
    """
    if videos is not None and str(videos) != PROCEDURAL:
        return in_folder(videos, first)
    wanted = CLIP_SETS[name]
    wanted = dataclasses.replace(wanted, names=wanted.names[:first])
    if videos is not None or data_dir is None:
        return Clips(PROCEDURAL, (name,) * len(wanted.names))
    found = in_data_folder(wanted, data_dir)
    if wanted.source != DMCGB:
        return found
    known = published_hashes(name)
    return dataclasses.replace(found, published=tuple(known[one] for one in found.names))


def published_hashes(name: str) -> dict[str, str]:
    """How the SHA-256 of the benchmark's own files of a mode begin, by the clip's name."""
    return dict(zip(CLIP_SETS[name].names, files.read_json(HASHES, 2**16)[name], strict=True))


def source_of(provenance: Mapping[str, Any]) -> str:
    """The source of a record's pictures.

    Records from before clips were identified call everything with the benchmark's names its own;
    what was stored at another size than 352 x 352 is not.
    """
    source = str(provenance.get("source", "not recorded"))
    if source != DMCGB or "clips" not in provenance or "identified" in provenance:
        return source
    return RECODED if provenance.get("stored", ["352 x 352"]) != ["352 x 352"] else NOT_IDENTIFIED


def in_folder(folder: str | Path, first: int | None = None) -> Clips:
    """The first videos and folders of frames by name in a folder, or all; none is a UserError."""
    cure = f"give a folder of videos or of folders of frames, or {PROCEDURAL!r}"
    path = existing_folder(folder, "videos", cure)
    found = [entry for entry in sorted(path.iterdir()) if _is_clip(entry)][:first]
    if not found:
        raise UserError(
            f"no videos in {path}: looked for {', '.join(VIDEO_ENDINGS)} and for folders of "
            f"{', '.join(PICTURE_ENDINGS)}."
        )
    return Clips(path.name, tuple(entry.name for entry in found), tuple(found))


def in_data_folder(wanted: ClipSet, data_dir: Path) -> Clips:
    """Find a benchmark's clips in a data folder; none of them is a UserError."""
    found: dict[str, Path] = {}
    for name in wanted.names:
        places = (data_dir / pattern.format(name) for pattern in wanted.patterns)
        if place := next(filter(_is_clip, places), None):
            found[name] = place
    if not found:
        looked = " or ".join(pattern.format(wanted.names[0]) for pattern in wanted.patterns)
        raise UserError(
            f"the data folder {data_dir} has none of the {len(wanted.names)} clips needed: looked "
            f"for {looked} and so on. Give a data folder that has them, or videos={PROCEDURAL!r} "
            "(or no data folder) to use generated videos."
        )
    missing = tuple(name for name in wanted.names if name not in found)
    return Clips(wanted.source, tuple(found), tuple(found.values()), missing)


def _is_clip(path: Path) -> bool:
    if path.is_dir():
        return bool(_pictures(path))
    return path.suffix.lower() in VIDEO_ENDINGS and path.is_file()  # no pipe that would block


def _pictures(folder: Path) -> list[Path]:
    files = (f for f in sorted(folder.iterdir()) if f.suffix.lower() in PICTURE_ENDINGS)
    return [file for file in files if file.is_file()][:MOST_FRAMES]


class _FileClip:
    """A clip whose frames arrive from a decoding thread while it is shown."""

    def __init__(self, path: Path, side: int, smooth: bool) -> None:
        self._path, self._side, self._smooth = path, side, smooth
        self._frames: list[np.ndarray] = []
        self._done, self.problem = False, ""
        self._arrived = threading.Condition()
        self._stop: Callable[[], None] = lambda: None
        threading.Thread(target=self._read, name=f"decode {path.name}", daemon=True).start()

    @property
    def size(self) -> int:
        """Bytes held."""
        return len(self._frames) * self._side**2 * 3

    def __len__(self) -> int:
        self._wait(MOST_FRAMES + 1)
        return len(self._frames)

    def frame(self, index: int) -> np.ndarray:
        # One more than needed, so that a clip of one frame is found out at its first.
        self._wait(max(index + 1, _FEWEST_FRAMES))
        return self._frames[index % len(self._frames)]

    def _wait(self, count: int) -> None:
        with self._arrived:
            if not self._arrived.wait_for(
                lambda: self._done or len(self._frames) >= count, timeout=SECONDS
            ):
                self.problem = self._unusable(f"took more than {SECONDS} s to decode")
                self._stop()
            if self.problem:
                raise UserError(self.problem)

    def _unusable(self, why: str) -> str:
        return f"the video {self._path} cannot be used: it {why}. Replace or remove it."

    def _read(self) -> None:
        """Decode to the end; runs in its own thread, so every problem is kept for who waits."""
        problem = ""
        on_start = functools.partial(setattr, self, "_stop")
        path, size = self._path, (self._side, self._smooth)
        try:
            video = not path.is_dir() and read_video(path, MOST_FRAMES, on_start, *size)
            for frame in video or _read_pictures(path, *size):
                with self._arrived:
                    self._frames.append(frame)
                    self._arrived.notify_all()
            if (count := len(self._frames)) < _FEWEST_FRAMES:
                raise DecodeError(f"has {count} frames, and a video needs {_FEWEST_FRAMES} or more")
        except DecodeError as damage:
            problem = self._unusable(str(damage))
        except FfmpegError as broken:  # whatever the file
            problem = str(broken)
        except Exception as error:
            problem = self._unusable(f"could not be decoded: {type(error).__name__}: {error}")
        with self._arrived:
            self.problem, self._done = self.problem or problem, True
            self._arrived.notify_all()


Clip = ProceduralClip | _FileClip
"""A video that repeats forever: `frame(index)` is square, uint8 and not to be written."""


def _read_pictures(folder: Path, side: int, smooth: bool) -> Iterator[np.ndarray]:
    for file in _pictures(folder):
        try:
            yield read_frame(file, side, smooth)
        except DecodeError as error:
            raise DecodeError(f"has a bad frame: {file.name} {error}") from error


_cache: OrderedDict[tuple[Path, int, int, int, bool], _FileClip] = OrderedDict()
_cache_in_use = threading.Lock()  # environments may share a process


def _open_file(path: Path, side: int = SIDE, smooth: bool = True) -> _FileClip:
    """Return the decoded clip, keeping the most recently used ones within the memory bound."""
    key = (path, *_state(path), side, smooth)
    with _cache_in_use:
        clip = _cache.get(key)
        if clip is None or clip.problem:
            clip = _cache[key] = _FileClip(path, side, smooth)
        _cache.move_to_end(key)
        while len(_cache) > 1 and sum(kept.size for kept in _cache.values()) > MOST_BYTES:
            _cache.popitem(last=False)
    return clip


def _state(path: Path) -> tuple[int, int]:
    """What changes when a file does."""
    try:
        state = path.stat()
    except OSError as error:
        raise UserError(f"the video {path} cannot be read: {error.strerror}.") from error
    return state.st_mtime_ns, state.st_size


@functools.lru_cache(4096)
def _stored(path: Path, changed: int, size: int) -> tuple[tuple[int, int] | None, str, str]:
    """What a clip's files are, for records; read once, as long as they do not change.

    Width and height of its frames, where that is cheap to know; the hash of a file, empty for a
    folder, which is no file of a benchmark's; and that of its files' names and hashes.
    """
    every = _pictures(path) if path.is_dir() else [path]
    try:
        hashes = [files.file_sha256(file, decode.MOST_BYTES) for file in every]
    except OSError as error:
        raise UserError(f"the video {path} cannot be read: {error.strerror}.") from error
    own = "" if path.is_dir() else hashes[0]
    return stored_size(every[0]), own, _sha256_of((file.name for file in every), hashes)


def _sha256_of(names: Iterable[str], hashes: Iterable[str]) -> str:
    named = zip(names, hashes, strict=True)
    return files.sha256("".join(f"{name} {sha256}\n" for name, sha256 in named))
