"""`svea data get`: download a public data set and lay it out as svea reads it.

An archive is downloaded whole and compared with its published checksum, which is pinned here where
there is one; the benchmark's repository has none, but `svea data check` knows its clips. Only the
files that svea reads are taken out of an archive, each under a name that the pattern of its source
spells out.
"""

import contextlib
import re
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from svea.core import files
from svea.core.errors import StorageError, UserError, unknown_name
from svea.data.clips import DAVIS
from svea.data.inventory import RECORD, content_sha256, inventory, read_record

SECONDS = 30  # a server that is silent for longer has dropped the connection

_WORK = ".downloads"
_DAMAGE = (
    *(shutil.ReadError, zipfile.BadZipFile, tarfile.TarError, zlib.error),
    *(EOFError, RuntimeError, ValueError),
)
OnBytes = Callable[[int, int], None]  # the bytes that have arrived, and in all (0: unknown)

DMCGB = "https://github.com/nicklashansen/dmcontrol-generalization-benchmark"


@dataclass(frozen=True)
class Source:
    """A public archive."""

    url: str
    kind: str  # `zip`, or `tar` (without compression)
    about: str  # what it is, and under which terms
    size: int  # bytes to expect; media hardly compress, so it holds for the archive and its content
    into: str  # the folder it becomes, below the data folder
    pattern: str  # which members are taken, by their whole name; group 1 is the path below `into`
    checksum: str | None = None  # as published, with its kind in front; None where none is


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


def get_data(
    name: str, folder: Path, on_bytes: OnBytes = lambda done, total: None
) -> dict[str, Any]:
    """Download a data set into a data folder, made if need be, in the layout that svea reads.

    Returns what `downloads.json` says of it: url, date, bytes, sha256, the published checksum, and
    the hash of each file. A UserError if the name is unknown or the folder has this data set, a
    StorageError if download, archive or disk failed.
    """
    if name not in SOURCES:
        raise unknown_name("data set", name, SOURCES)
    source, root = SOURCES[name], Path(folder).expanduser()
    destination = root / source.into
    if destination.exists():
        raise UserError(
            f"{destination} exists. Check it with `svea data check {root}`; to download it again, "
            "move it away first."
        )
    record = read_record(root)
    work = root / _WORK / name
    archive = work / f"{name}.{source.kind}"
    with files.writing(work, source.size):
        work.mkdir(parents=True, exist_ok=True)
        busy = UserError(f"another process downloads into {work}; wait for its end.")
        with files.locked(work, busy):
            for entry in set(work.iterdir()) - {archive}:  # what a killed download left
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
            fetch(source, archive, on_bytes)
            staging = work / "unpacked"
            unpack(source, archive, staging / source.into)
            described = _describe(staging, name, source, archive)
            files.replace_json(root / RECORD, record | {name: described})
            destination.parent.mkdir(parents=True, exist_ok=True)
            (staging / source.into).rename(destination)  # all of it appears at once
            shutil.rmtree(work)
    with contextlib.suppress(OSError):  # another download is there
        (root / _WORK).rmdir()
    return described


def fetch(source: Source, archive: Path, on_bytes: OnBytes) -> None:
    """Download an archive and compare its checksum; one that is there already is kept."""
    import pooch
    import requests

    if not archive.exists():
        files.require_space(archive.parent, 2 * source.size, f"downloading {archive.stem}")
    pooch.get_logger().setLevel("WARNING")  # it would ask users to note the hash
    load = pooch.HTTPDownloader(timeout=SECONDS, chunk_size=2**18, progressbar=_Bytes(on_bytes))
    try:
        pooch.retrieve(source.url, source.checksum, archive.name, archive.parent, downloader=load)
    except requests.RequestException as error:
        raise StorageError(
            f"cannot download {source.url}: {error}. Check the network and run the command again; "
            "or get the data elsewhere and lay it out as docs/data.md shows."
        ) from error
    except ValueError as error:  # pooch's for a checksum that differs
        raise StorageError(
            f"{source.url} sent another file than was published: {error} Nothing was kept; run the "
            "command again."
        ) from error


def unpack(source: Source, archive: Path, target: Path) -> None:
    """Write the files of an archive that svea reads into a new folder.

    A StorageError if it is damaged, or has none of the files; it is deleted.
    """
    only_below: dict[str, Any] = {"filter": "data"} if source.kind == "tar" else {}
    try:
        with tempfile.TemporaryDirectory(dir=archive.parent) as whole:
            shutil.unpack_archive(archive, whole, source.kind, **only_below)
            for path in filter(Path.is_file, Path(whole).rglob("*")):
                if match := re.fullmatch(source.pattern, path.relative_to(whole).as_posix()):
                    kept = target / match[1]
                    kept.parent.mkdir(parents=True, exist_ok=True)
                    path.rename(kept)
        if not target.exists():
            raise ValueError("it has none of the files looked for")
    except _DAMAGE as error:
        archive.unlink()
        raise StorageError(
            f"the archive {archive} is damaged or not the expected one: {error or type(error)}. "
            "It was deleted; run the command again."
        ) from error


class _Bytes:
    """What pooch expects of a progress bar."""

    total: int = 0

    def __init__(self, on_bytes: OnBytes) -> None:
        self._on_bytes, self._done = on_bytes, 0

    def update(self, size: int) -> None:
        self._done += size
        self._on_bytes(self._done, self.total)

    def reset(self) -> None:
        """Begin again at 0, as pooch does before it counts the whole file."""
        self._done = 0

    def close(self) -> None:
        """Nothing to do."""


def _describe(root: Path, name: str, source: Source, archive: Path) -> dict[str, Any]:
    found = [file for part in inventory(root) if part.source == name for file in part.files]
    return {
        "url": source.url,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "bytes": archive.stat().st_size,
        "sha256": content_sha256(archive),
        "verified": source.checksum,
        "files": {file.relative_to(root).as_posix(): content_sha256(file) for file in found},
    }
