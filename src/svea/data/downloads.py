"""Where the public data sets come from, and fetching them: with progress, resumable, checked.

A download grows in a `.part` file, beside which a `.part.json` remembers what the server called
that version of the file. Stopped by Ctrl-C, a lost connection or a full disk, it goes on from there
when the same command runs again; where the server cannot do that, or has another version by then,
it starts anew.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import shutil
import ssl
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from svea import __version__
from svea.data.archives import Picks
from svea.envs.looks.distracting import DAVIS
from svea.errors import StorageError

SECONDS = 30
"""A server that is silent for longer has dropped the connection."""

PAUSES = (1.0, 2.0, 4.0, 8.0)
"""Seconds between tries; they begin again whenever a try brought at least a megabyte."""

LIMIT = 4
"""An archive, and what it unpacks to, may have this many times the expected bytes."""

_BLOCK = 2**18
_MEGABYTE = 2**20


@dataclass(frozen=True)
class Source:
    """A public archive."""

    url: str
    kind: str
    """`zip` or `tar`."""
    about: str
    """What it is, and under which terms."""
    size: int
    """Bytes to expect; media hardly compress, so it holds for the archive and its content."""
    into: str
    """The folder it becomes, below the data folder."""
    picks: Picks
    most_files: int
    md5: str | None = None
    """As published; None where nobody has published one."""


SOURCES = {
    "dmcgb": Source(
        url="https://github.com/nicklashansen/dmcontrol-generalization-benchmark/archive/"
        "6f8073759d95830d542bc780dec643be46cf13b4.zip",
        kind="zip",
        about="DMControl-GB's colours and videos (MIT licence)",
        size=80_000_000,
        into="dmcgb",
        picks=(
            (r"[^/]+/src/env/data/(color_easy|color_hard)\.pt", r"\1.pt"),
            (r"[^/]+/src/env/data/(video_easy|video_hard)/(video\d{1,2}\.mp4)", r"\1/\2"),
            (r"[^/]+/LICENSE", "LICENSE"),
        ),
        most_files=120,
    ),
    "davis": Source(
        url="https://data.vision.ee.ethz.ch/csergi/share/davis/DAVIS-2017-trainval-480p.zip",
        kind="zip",
        about="the 60 training clips of DAVIS-2017 at 480p (CC BY-NC 4.0: no commercial use)",
        size=832_766_765,
        into="DAVIS",
        picks=(
            (
                rf"DAVIS/JPEGImages/480p/({'|'.join(DAVIS)})/(\d{{5}}\.jpg)",
                r"JPEGImages/480p/\1/\2",
            ),
        ),
        most_files=10_000,
    ),
    "places365-val": Source(
        url="https://data.csail.mit.edu/places/places365/val_256.tar",
        kind="tar",
        about="the 36,500 validation pictures of Places365 at 256 x 256 "
        "(for research and education: see places2.csail.mit.edu)",
        size=525_158_400,
        into="places365_standard/val",
        picks=((r"val_256/(Places365_val_\d{8}\.jpg)", r"\1"),),
        most_files=36_500,
        md5="e27b17d8d44f4af9a78502beb927f808",  # published in torchvision.datasets.Places365
    ),
}
"""What `svea data get` knows."""


class DownloadError(StorageError):
    """A file cannot be fetched, or is not the one that was published."""


class _Dropped(Exception):
    """A try that failed in a way that the next may not."""


def fetch(source: Source, archive: Path, *, loopback: bool = False) -> None:
    """Download an archive, continuing an earlier try where there is one.

    Args:
        source: What to fetch.
        archive: Where to put it; it appears there when it is complete.
        loopback: Allow plain http, from this machine only.

    Raises:
        DownloadError: The server refuses, or the connection fails again and again.
        StorageError: The disk refuses, or is too small.
    """
    check_url(source.url, loopback)
    part = PartialFile(source, archive)
    opener = _opener(loopback)
    furthest, pauses = 0, iter(PAUSES)
    while True:
        try:
            with _writing(archive):
                _continue(part, opener)
                break
        except _Dropped as reason:
            if part.size >= furthest + _MEGABYTE:
                furthest, pauses = part.size, iter(PAUSES)
            pause = next(pauses, None)
            if pause is None:
                kept = (
                    f"{part.size} bytes are kept in {part.path}"
                    if part.size
                    else "Check the network"
                )
                raise DownloadError(
                    f"cannot download {source.url}: {reason}. {kept}; run the command again."
                ) from reason
            print(f"{reason}; trying again in {pause:g} s", file=sys.stderr)
            time.sleep(pause)
    with _writing(archive):
        part.finish()


def verify(source: Source, archive: Path) -> str:
    """Compare an archive with its published checksum, if there is one.

    Returns:
        The archive's sha256.

    Raises:
        DownloadError: It differs; the archive is deleted, since it is of no use.
    """
    with _writing(archive), archive.open("rb") as content:
        sha256, md5 = hashlib.sha256(), hashlib.md5(usedforsecurity=False)
        while block := content.read(_MEGABYTE):
            sha256.update(block)
            md5.update(block)
    if source.md5 is not None and md5.hexdigest() != source.md5:
        archive.unlink()
        raise DownloadError(
            f"{source.url} sent another file than was published: its md5 is {md5.hexdigest()} and "
            f"should be {source.md5}. It was deleted; run the command again."
        )
    return sha256.hexdigest()


class PartialFile:
    """A download that is not complete, and what is known of the file it will be."""

    def __init__(self, source: Source, archive: Path) -> None:
        """Find what an earlier try left."""
        self.source, self.archive = source, archive
        self.path = archive.with_name(f"{archive.name}.part")
        self._note = archive.with_name(f"{archive.name}.part.json")

    @property
    def size(self) -> int:
        """Bytes there are."""
        return self.path.stat().st_size if self.path.is_file() else 0

    def read_note(self) -> dict[str, Any]:
        """Version and length of the file that the part belongs to; empty if it must start anew."""
        try:
            note = json.loads(self._note.read_text())
        except (OSError, ValueError):
            return {}
        same = isinstance(note, dict) and note.get("url") == self.source.url
        return note if same and self.size else {}

    def write_note(self, version: str | None, total: int | None) -> None:
        """Remember which file the part belongs to."""
        note = {"url": self.source.url, "version": version, "total": total}
        self._note.write_text(json.dumps(note))

    def forget(self) -> None:
        """Make the next try start anew."""
        self._note.unlink(missing_ok=True)

    def finish(self) -> None:
        """Give the complete file its name."""
        self.path.replace(self.archive)
        self.forget()


def _continue(part: PartialFile, opener: urllib.request.OpenerDirector) -> None:
    """Fetch what is missing, in one request."""
    note, have = part.read_note(), part.size
    if note and note.get("total") == have:
        return
    version = note.get("version")
    have = have if version else 0
    headers = {"User-Agent": f"svea/{__version__}", "Accept-Encoding": "identity"}
    if have:
        headers |= {"Range": f"bytes={have}-", "If-Range": str(version)}
    with _answer(opener, urllib.request.Request(part.source.url, headers=headers), part) as answer:
        start, total = _extent(answer, have, note.get("total"), part)
        if (total or 0) > LIMIT * part.source.size:
            raise DownloadError(f"{part.source.url} has {total} bytes: too many to be the archive.")
        _require_space(part, start, total)
        part.write_note(_version(answer), total)
        _receive(answer, part, start, total)


@contextmanager
def _answer(
    opener: urllib.request.OpenerDirector, request: urllib.request.Request, part: PartialFile
) -> Iterator[http.client.HTTPResponse]:
    """Ask the server; sort its refusals into final ones and those worth another try."""
    url = request.full_url
    try:
        answer = opener.open(request, timeout=SECONDS)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416:
            part.forget()  # the server's file is shorter than what we have: another one
            raise _Dropped("the server has another file than before") from error
        if error.code >= 500 or error.code in (408, 429):
            raise _Dropped(f"the server answers {error.code} {error.reason}") from error
        raise DownloadError(
            f"{url} answers {error.code} {error.reason}. Get the data elsewhere and lay it out as "
            "docs/data.md shows."
        ) from error
    except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
        cause = getattr(error, "reason", error)
        if isinstance(cause, ssl.SSLCertVerificationError):
            raise DownloadError(f"{url} has no valid certificate: {cause}.") from error
        raise _Dropped(f"no answer ({cause})") from error
    with answer:
        if answer.headers.get("Content-Encoding", "identity") != "identity":
            raise DownloadError(f"{url} sends compressed text instead of the archive.")
        yield answer


def _extent(
    answer: http.client.HTTPResponse, have: int, known: int | None, part: PartialFile
) -> tuple[int, int | None]:
    """Where the answer's bytes begin in the file, and how long the file is."""
    if answer.status != 206:
        if have:
            print("the server cannot continue: starting anew", file=sys.stderr)
        return 0, answer.length
    span, _, total = answer.headers.get("Content-Range", "").removeprefix("bytes ").partition("/")
    same = span.startswith(f"{have}-") and total.isdigit() and known in (None, int(total))
    if not same:
        part.forget()
        raise _Dropped("the server sends another part than was asked for")
    return have, int(total)


def _version(answer: http.client.HTTPResponse) -> str | None:
    """What names the version of a file to the byte; a weak tag (W/) does not."""
    tag = answer.headers.get("ETag", "")
    return tag if tag.startswith('"') else answer.headers.get("Last-Modified")


def _receive(
    answer: http.client.HTTPResponse, part: PartialFile, start: int, total: int | None
) -> None:
    """Write what arrives."""
    size, progress = start, Progress(part.archive.name, total)
    with part.path.open("ab" if start else "wb") as file:
        while True:
            try:
                block = answer.read1(_BLOCK)  # what has arrived: nothing is lost with the next
            except (http.client.HTTPException, OSError) as error:
                raise _Dropped(f"the connection broke at {size} bytes") from error
            if not block:
                break
            size += file.write(block)
            if size > (total or LIMIT * part.source.size):
                part.forget()
                raise DownloadError(f"{part.source.url} sends more bytes than it should.")
            progress.show(size)
    progress.end(size)
    if total is not None and size < total:
        raise _Dropped(f"the connection ended at {size} of {total} bytes")


def _require_space(part: PartialFile, start: int, total: int | None) -> None:
    """Refuse to begin what cannot be finished: the rest of the archive, and its content."""
    whole = total or part.source.size
    needed, free = whole - start + whole, shutil.disk_usage(part.path.parent).free
    if free < needed:
        raise StorageError(
            f"{part.path.parent} has {free // _MEGABYTE} MB free; downloading and unpacking need "
            f"{needed // _MEGABYTE} MB. Make room, or give another folder."
        )


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Put disk trouble into words."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"cannot write {path}: {error.strerror or error}. Make room or choose another folder; "
            "the same command goes on from where it stopped."
        ) from error


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows the server elsewhere, but never away from https."""

    def __init__(self, loopback: bool) -> None:
        self._loopback = loopback

    def redirect_request(self, *arguments: Any) -> urllib.request.Request | None:
        """Look at the new address, the last argument, first."""
        check_url(arguments[-1], self._loopback)
        return super().redirect_request(*arguments)


def check_url(url: str, loopback: bool) -> None:
    """Refuse anything but https, or http from this machine where that is allowed."""
    parts = urlsplit(url)
    local = loopback and parts.scheme == "http" and parts.hostname == "127.0.0.1"
    if parts.scheme != "https" and not local:
        raise DownloadError(f"refused to download from {url}: only https is used.")


def _opener(loopback: bool) -> urllib.request.OpenerDirector:
    """An opener that knows http and https only: no files, no ftp."""
    opener = urllib.request.OpenerDirector()
    handlers: list[urllib.request.BaseHandler] = [
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        _Redirects(loopback),
    ]
    if not loopback:
        handlers.append(urllib.request.ProxyHandler())  # the usual variables, for those who need it
    for handler in handlers:
        opener.add_handler(handler)
    return opener


class Progress:
    """One line on stderr: on a terminal it is renewed, elsewhere there are about ten of them."""

    def __init__(self, name: str, total: int | None) -> None:
        """Begin; `total` may be unknown."""
        self._name, self._total = name, total
        self._step = max(1, (total or 320 * _MEGABYTE) // 10)
        self._next, self._shown = 0, 0.0
        self._live = sys.stderr.isatty()

    def show(self, size: int) -> None:
        """Say how far it is, now and then."""
        now = time.monotonic()
        if now - self._shown < 0.2 if self._live else size < self._next:
            return
        self._shown, self._next = now, size + self._step
        self._print(size, "\r" if self._live else "\n")

    def end(self, size: int) -> None:
        """Say how far it came."""
        self._print(size, "\n")

    def _print(self, size: int, end: str) -> None:
        of = f" of {self._total / 1e6:.1f}" if self._total else ""
        print(f"{self._name}: {size / 1e6:.1f}{of} MB", end=end, file=sys.stderr, flush=True)
