"""Unpacking archives that came from elsewhere: nothing lands outside, nothing grows without bound.

Only members that match a pattern are written, under the name that the pattern gives them. One
member with a hostile name, or a picked one that is not a plain file, and the whole archive is
refused before the first byte is written.
"""

from __future__ import annotations

import re
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

from svea.errors import StorageError

Picks = Sequence[tuple[str, str]]
"""Regular expressions for whole member names, each with the path to write to (`\\1` for groups)."""

_BLOCK = 2**20
_MOST_ENTRIES = 200_000  # of any kind, picked or not: DAVIS has about 20,000
_MOST_DIRECTORY_BYTES = 64 * 2**20  # a zip's table of contents, which is read at once
_DAMAGE = (
    *(zipfile.BadZipFile, tarfile.TarError, zlib.error, struct.error),
    *(EOFError, RuntimeError, ValueError),
)


class ArchiveError(StorageError):
    """An archive is damaged, hostile, or not what it should be."""


@dataclass(frozen=True)
class _Member:
    """One entry of an archive."""

    name: str
    size: int
    folder: bool
    plain: bool
    """Whether it is an ordinary file: no link, no device, not encrypted."""
    open: Callable[[], IO[bytes] | None]


def unpack(
    archive: Path, kind: str, picks: Picks, target: Path, *, most_files: int, most_bytes: int
) -> int:
    """Write the picked files of an archive into a new folder.

    Args:
        archive: The file to unpack.
        kind: `zip`, or `tar` (without compression).
        picks: Which members to write, and where to below `target`.
        target: A folder that does not exist yet.
        most_files: More picked files are refused.
        most_bytes: More bytes in the picked files are refused.

    Returns:
        The bytes written.

    Raises:
        ArchiveError: The archive is damaged or hostile, or has none of the files.
        StorageError: The disk refuses.
    """
    with _reading(archive), _members(archive, kind) as members:
        plan = _choose(archive, members, picks, most_files, most_bytes)
        for path, member in plan.items():
            _write(archive, member, target / path)
    return sum(member.size for member in plan.values())


@contextmanager
def _reading(archive: Path) -> Iterator[None]:
    """Turn what a broken archive or a full disk raises into words."""
    try:
        yield
    except _DAMAGE as error:
        raise ArchiveError(f"the archive {archive} is damaged: {error or type(error)}.") from error
    except OSError as error:
        raise StorageError(
            f"cannot unpack {archive}: {error}. Make room, or delete it to download it again."
        ) from error


@contextmanager
def _members(archive: Path, kind: str) -> Iterator[Iterator[_Member]]:
    """Open an archive and walk through its entries."""
    if kind == "tar":
        with tarfile.open(archive, "r:") as tar:
            yield _tar_members(tar)
    else:
        _check_directory_size(archive)
        with zipfile.ZipFile(archive) as file:
            yield _zip_members(file)


def _tar_members(tar: tarfile.TarFile) -> Iterator[_Member]:
    for entry in tar:
        plain = entry.isreg() and not entry.issparse()
        yield _Member(entry.name, entry.size, entry.isdir(), plain, partial(tar.extractfile, entry))


def _zip_members(file: zipfile.ZipFile) -> Iterator[_Member]:
    for entry in file.infolist():
        encrypted = bool(entry.flag_bits & 1)
        plain = not encrypted and stat.S_IFMT(entry.external_attr >> 16) in (0, stat.S_IFREG)
        # orig_filename is what the archive says: zipfile mends some hostile names in silence.
        yield _Member(
            entry.orig_filename,
            entry.file_size,
            entry.is_dir(),
            plain,
            partial(file.open, entry),
        )


def _check_directory_size(archive: Path) -> None:
    """Refuse a zip whose table of contents would fill the memory, before zipfile reads it."""
    with archive.open("rb") as content:
        content.seek(-min(archive.stat().st_size, 2**16 + 22), 2)
        tail = content.read()
        end = tail.rfind(b"PK\x05\x06")
        if end < 0 or len(tail) - end < 22:
            raise ArchiveError(f"the archive {archive} is damaged: no zip file, or cut short.")
        (size,) = struct.unpack_from("<L", tail, end + 12)
        if end >= 20 and tail[end - 20 : end - 16] == b"PK\x06\x07":  # the 64-bit extension
            (start,) = struct.unpack_from("<Q", tail, end - 12)
            content.seek(min(start, archive.stat().st_size))
            (size,) = struct.unpack_from("<Q", content.read(56), 40)
    if size > _MOST_DIRECTORY_BYTES:
        raise ArchiveError(
            f"the archive {archive} is refused: its table of contents has {size} bytes, and at "
            f"most {_MOST_DIRECTORY_BYTES} are read."
        )


def _choose(
    archive: Path, members: Iterator[_Member], picks: Picks, most_files: int, most_bytes: int
) -> dict[str, _Member]:
    """Decide what is written where; refuse the archive when anything looks wrong."""
    refused = f"the archive {archive} is refused: "
    plan: dict[str, _Member] = {}
    taken: set[str] = set()
    total = 0
    for count, member in enumerate(members, 1):
        if count > _MOST_ENTRIES:
            raise ArchiveError(f"{refused}it has more than {_MOST_ENTRIES} entries.")
        if is_hostile(member.name):
            raise ArchiveError(f"{refused}the name {member.name!r} leads out of its folder.")
        path = None if member.folder else _pick(member.name.removeprefix("./"), picks)
        if path is None:
            continue
        if not member.plain:
            raise ArchiveError(f"{refused}{member.name!r} is a link, a device or encrypted.")
        if path.casefold() in taken:
            raise ArchiveError(f"{refused}it has {member.name!r} twice.")
        plan[path] = member
        taken.add(path.casefold())
        total += member.size
        if len(plan) > most_files or total > most_bytes:
            raise ArchiveError(
                f"{refused}it unpacks to more than {most_files} files or {most_bytes} bytes."
            )
    if not plan:
        raise ArchiveError(f"the archive {archive} has none of the files looked for.")
    return plan


def is_hostile(name: str) -> bool:
    """Whether a member's name could lead out of the folder it is unpacked into."""
    odd = any(ord(letter) < 32 for letter in name) or "\\" in name or not name
    return odd or name.startswith("/") or name[1:2] == ":" or ".." in name.split("/")


def _pick(name: str, picks: Picks) -> str | None:
    """Where to write a member, or None to leave it."""
    for pattern, path in picks:
        if match := re.fullmatch(pattern, name):
            return match.expand(path)
    return None


def _write(archive: Path, member: _Member, path: Path) -> None:
    """Write one member, believing its size no further than to the byte."""
    path.parent.mkdir(parents=True, exist_ok=True)
    source = member.open()
    written = 0
    if source is not None:
        with source, path.open("xb") as file:
            while block := source.read(min(_BLOCK, member.size + 1 - written)):
                written += file.write(block)
                if written > member.size:
                    break
    if written != member.size:
        raise ArchiveError(f"the archive {archive} is damaged: {member.name!r} has a false size.")
