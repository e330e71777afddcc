"""`svea data get`: download a public data set and lay it out as svea reads it.

An archive is downloaded whole, compared with its published checksum where there is one, and only
the files that svea reads are taken out of it. A member is written under a name that the pattern of
its source spells out, so an archive cannot choose where a file lands.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import lzma
import os
import re
import shutil
import stat
import struct
import sys
import tarfile
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from svea.core import files, machine, words
from svea.core.errors import StorageError, UserError, unknown_name
from svea.data.folders import DAVIS
from svea.data.inventory import content_sha256, inventory, storage_errors

LINE_SECONDS = 10.0  # between lines about a download where there is no terminal
SECONDS = 30
"""A server that is silent for longer has dropped the connection."""

LIMIT = 4
"""An archive, and what it unpacks to, may have this many times the expected bytes."""

PIECE = 2**20  # bytes read at once

RECORD = "downloads.json"
"""In the data folder: where each download came from, and the hashes of its files."""

RECORD_BYTES = 2**30  # 100 bytes for the hash of each of 1.8 million files, and room

_WORK = ".downloads"
NOT_PINNED = "not pinned: no checksum of it is published"
_DAMAGE = (
    *(zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, struct.error),
    *(EOFError, RuntimeError, ValueError),
)
DMCGB = "https://github.com/nicklashansen/dmcontrol-generalization-benchmark"


@dataclass(frozen=True)
class Source:
    """A public archive."""

    url: str
    kind: str
    """`zip`, or `tar` (without compression)."""
    about: str
    """What it is, and under which terms."""
    size: int
    """Bytes to expect; media hardly compress, so it holds for the archive and its content."""
    into: str
    """The folder it becomes, below the data folder."""
    pattern: str
    """Which members are taken, by their whole name; group 1 is the path below `into`."""
    checksum: str | None = None
    """As published, with its kind in front; None where none is."""


SOURCES = {
    "dmcgb": Source(
        url=f"{DMCGB}/archive/6f8073759d95830d542bc780dec643be46cf13b4.zip",
        kind="zip",
        about="DMControl-GB's videos (MIT licence)",
        size=80_000_000,
        into="dmcgb",
        pattern=r"[^/]+/(?:src/env/data/)?(LICENSE|video_(?:easy|hard)/video\d{1,2}\.mp4)",
    ),
    "davis": Source(
        url="https://data.vision.ee.ethz.ch/csergi/share/davis/DAVIS-2017-trainval-480p.zip",
        kind="zip",
        about="the 60 training clips of DAVIS-2017 at 480p (CC BY-NC 4.0: no commercial use)",
        size=832_766_765,
        into="DAVIS",
        pattern=rf"DAVIS/(JPEGImages/480p/(?:{'|'.join(DAVIS)})/\d{{5}}\.jpg)",
        checksum=(  # of tensorflow_datasets/video/davis/checksums.tsv
            "sha256:e3d0b5b77c3d031b000a19e0e25e3e2cac65d183755601bc2cf066df1a2aa492"
        ),
    ),
    "places365-val": Source(
        url="https://data.csail.mit.edu/places/places365/val_256.tar",
        kind="tar",
        about="the 36,500 validation pictures of Places365 at 256 x 256 "
        "(for research and education: see places2.csail.mit.edu)",
        size=525_158_400,
        into="places365_standard/val",
        pattern=r"val_256/(Places365_val_\d{8}\.jpg)",
        checksum="md5:e27b17d8d44f4af9a78502beb927f808",  # of torchvision.datasets.Places365
    ),
}
"""What `svea data get` knows."""


class DownloadError(StorageError):
    """A file cannot be fetched, or is not the one that was published."""


class ArchiveError(StorageError):
    """An archive is damaged, hostile, or not what it should be."""


def get_data(name: str, folder: Path, *, sources: Mapping[str, Source] = SOURCES) -> int:
    """Download a data set into a data folder, in the layout that svea reads.

    Args:
        name: One of `SOURCES`.
        folder: The data folder; made if need be.
        sources: What there is to get.

    Raises:
        UserError: The name is unknown, or the folder has this data set.
        StorageError: Download, archive or disk failed.
    """
    if name not in sources:
        raise unknown_name("data set", name, sources)
    source, root = sources[name], Path(folder).expanduser()
    destination = root / source.into
    if destination.exists():
        raise UserError(
            f"{destination} exists. Check it with `svea data check {root}`; to download it again, "
            "move it away first."
        )
    record = read_record(root)
    print(f"{name}: {source.about}, about {source.size // 10**6} MB, from {source.url}")
    archive = root / _WORK / name / f"{name}.{source.kind}"
    with storage_errors(archive.parent), _alone_in(archive.parent, archive):
        fetch(source, archive)
        print("unpacking", file=sys.stderr, flush=True)
        staging = archive.parent / "unpacked"
        unpack(source, archive, staging / source.into)
        described = _describe(staging, name, source, archive)
        content = json.dumps(record | {name: described}, indent=1) + "\n"
        files.replace(root / RECORD, [content.encode()])
        destination.parent.mkdir(parents=True, exist_ok=True)
        (staging / source.into).rename(destination)  # all of it appears at once
        shutil.rmtree(archive.parent)
    with contextlib.suppress(OSError):  # another download is there
        (root / _WORK).rmdir()
    verified = f"{source.checksum}, as published" if source.checksum else NOT_PINNED
    print(f"archive sha256 {described['sha256']} ({verified}); recorded in {root / RECORD}")
    for part in inventory(root):
        if part.source == name:
            print(f"{part.name:<15} {part.summary}")
    print(f"use it with --data-dir {root} or export SVEA_DATA={root}")
    return 0


@contextmanager
def _alone_in(work: Path, archive: Path) -> Iterator[None]:
    """A folder for one download at a time; of what a killed one left, only the archive is kept."""
    for folder in (work.parent, work):
        if folder.is_symlink():
            raise StorageError(f"{folder} is a link; remove it and run the command again.")
    work.mkdir(parents=True, exist_ok=True)
    lock = os.open(work, os.O_RDONLY)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"another process downloads into {work}; wait for its end.") from None
        except OSError:  # a file system without locks
            pass
        for entry in work.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            elif entry != archive or not stat.S_ISREG(entry.lstat().st_mode):
                entry.unlink()
        yield
    finally:
        os.close(lock)


def fetch(source: Source, archive: Path) -> None:
    """Download an archive and compare its checksum; one that is there already is kept.

    Raises:
        DownloadError: No network, or the server refuses, or sends another file than was published.
        StorageError: The disk is full.
    """
    import pooch
    import requests

    _check_url(source.url)
    if not archive.exists():
        files.require_space(archive.parent, 2 * source.size, f"downloading {archive.stem}")
    pooch.get_logger().setLevel("WARNING")  # it would ask users to note the hash
    try:
        with _progress(archive.name) as progress:
            pooch.retrieve(
                source.url,
                source.checksum,
                archive.name,
                archive.parent,
                downloader=pooch.HTTPDownloader(
                    timeout=SECONDS,
                    chunk_size=2**18,
                    progressbar=progress,
                    hooks={"response": lambda response, **_: _check_response(source, response)},
                ),
            )
    except requests.RequestException as error:
        raise DownloadError(
            f"cannot download {source.url}: {error}. Check the network and run the command again; "
            "or get the data elsewhere and lay it out as docs/data.md shows."
        ) from error
    except ValueError as error:  # pooch's for a checksum that differs
        raise DownloadError(
            f"{source.url} sent another file than was published: {error} Nothing was kept; run the "
            "command again."
        ) from error


def unpack(source: Source, archive: Path, target: Path) -> None:
    """Write the files of an archive that svea reads into a new folder.

    Raises:
        ArchiveError: The archive is damaged, unpacks to too much, or has none of the files. It is
            deleted, and nothing is left of what was unpacked.
    """
    try:
        with _members(archive, source.kind) as members:
            _write_members(source, members, target)
    except (*_DAMAGE, ArchiveError) as error:
        archive.unlink(missing_ok=True)
        shutil.rmtree(target, ignore_errors=True)
        raise ArchiveError(
            f"the archive {archive} is damaged or not the expected one: {error or type(error)}. "
            "It was deleted; run the command again."
        ) from error


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


Member = tuple[str, int, Callable[[], IO[bytes] | None]]
"""Name, size, and how to open it."""


@contextmanager
def _members(archive: Path, kind: str) -> Iterator[Iterator[Member]]:
    """The plain files of an archive."""
    if kind == "tar":
        with tarfile.open(archive, "r:") as tar:
            yield ((e.name, e.size, partial(tar.extractfile, e)) for e in tar if e.isreg())
    else:
        with zipfile.ZipFile(archive) as packed:
            yield ((e.filename, e.file_size, partial(packed.open, e)) for e in packed.infolist())


def _write_members(source: Source, members: Iterator[Member], target: Path) -> None:
    """Write what matches the source's pattern."""
    count = total = 0
    for name, size, open_member in members:
        match = re.fullmatch(source.pattern, name.removeprefix("./"))
        if not match:
            continue
        count, total = count + 1, total + size
        if total > LIMIT * source.size:
            raise ArchiveError(f"it unpacks to more than {LIMIT * source.size} bytes")
        path = target / match[1]
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            for piece in _content(open_member):
                file.write(piece)
    if not count:
        raise ArchiveError("it has none of the files looked for")


def _content(open_member: Callable[[], IO[bytes] | None]) -> Iterator[bytes]:
    """A member piece by piece.

    Flipped bits also show as OSError: an offset before the file's begin, or bz2's complaint about
    its data. So trouble with reading is damage, and trouble with writing is not.
    """
    try:
        content = open_member()
        assert content is not None  # it is a plain file
        with content:
            while piece := content.read(PIECE):
                yield piece
    except OSError as error:
        raise ArchiveError(str(error)) from error


def _check_response(source: Source, response: Any) -> None:
    """Refuse a redirect away from https, and a file that is far too large, or becomes it."""
    _check_url(response.url)
    _check_size(source, int(response.headers.get("content-length", 0)))
    read = response.iter_content

    def counted(*given: Any, **options: Any) -> Iterator[bytes]:
        size = 0
        for piece in read(*given, **options):
            size += len(piece)
            _check_size(source, size)
            yield piece

    response.iter_content = counted


def _check_size(source: Source, size: int) -> None:
    if size > LIMIT * source.size:
        raise DownloadError(
            f"{source.url} sends {words.size(size)} or more, where about {words.size(source.size)} "
            "are expected: it is not the archive. Get the data elsewhere, laid out as "
            "docs/data.md shows."
        )


def _check_url(url: str) -> None:
    """Refuse anything but https, except from this machine."""
    parts = urlsplit(url)
    if parts.scheme != "https" and (parts.scheme, parts.hostname) != ("http", "127.0.0.1"):
        raise DownloadError(f"refused to download from {url}: only https is used.")


@contextmanager
def _progress(name: str) -> Iterator[Any]:
    """A progress bar with the few methods that pooch calls."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn

    columns = (name, BarColumn(), DownloadColumn(), TransferSpeedColumn())
    console = machine.console(stderr=True)
    with Progress(*columns, console=console, disable=not machine.can_redraw(console)) as shown:
        yield _Bar(shown)


class _Bar:
    """What pooch expects of tqdm, shown by rich; a line now and then where there is no terminal."""

    total: int = 0

    def __init__(self, shown: Any) -> None:
        self._shown, self._task = shown, shown.add_task("download", total=None)
        self._last_line = time.monotonic()

    def update(self, size: int) -> None:
        """Count bytes."""
        self._shown.update(self._task, advance=size, total=self.total or None)
        if self._shown.disable and time.monotonic() - self._last_line > LINE_SECONDS:
            self._last_line = time.monotonic()
            done = self._shown.tasks[self._task].completed / 1e6
            of = f" of {self.total / 1e6:.0f}" if self.total else ""
            print(f"downloaded {done:.0f}{of} MB", file=sys.stderr, flush=True)

    def reset(self) -> None:
        """Begin again at 0, as pooch does before it counts the whole file."""
        self._shown.update(self._task, completed=0)

    def close(self) -> None:
        """Nothing to do: the context ends the bar."""


def _describe(root: Path, name: str, source: Source, archive: Path) -> dict[str, Any]:
    """Where the data came from, and what it was."""
    found = [file for part in inventory(root) if part.source == name for file in part.files]
    return {
        "url": source.url,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "bytes": archive.stat().st_size,
        "sha256": content_sha256(archive),
        "verified": source.checksum,
        "files": {file.relative_to(root).as_posix(): content_sha256(file) for file in found},
    }
