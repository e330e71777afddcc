"""Reading what lies in a run or data folder, which may come from anywhere.

Every reader of such a file goes through here: a pipe would block forever, a device never end, and
a sparse file of a terabyte takes no room on the disk of its sender. So only plain files are read,
each within a limit that its kind sets.
"""

from __future__ import annotations

import errno
import hashlib
import io
import itertools
import json
import os
import re
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from svea.core import words
from svea.core.errors import StorageError

BLOCK = 2**22  # bytes read at once
LINE_BYTES = 2**24
"""A longer line of a log is damage."""

_TOO_MANY_DIGITS = re.compile(rb"\d{309}")

_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
    stat.S_IFSOCK: "a socket",
}


def descriptor(path: Path, flags: int) -> int:
    """A descriptor of a plain file; anything else is refused without waiting for it."""
    try:
        opened = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.EISDIR):  # a pipe that nothing reads, a folder
            raise _not_plain(path, os.stat(path).st_mode) from None
        raise
    mode = os.fstat(opened).st_mode
    if not stat.S_ISREG(mode):
        os.close(opened)
        raise _not_plain(path, mode)
    return opened


def open_plain(path: Path, limit: int) -> io.BufferedReader:
    """Open a plain file of at most `limit` bytes for reading.

    Raises:
        StorageError: It is something else (a pipe, a device, a folder), or larger.
        OSError: It is missing, or not ours to read.
    """
    opened = descriptor(path, os.O_RDONLY)
    size = os.fstat(opened).st_size
    if size > limit:
        os.close(opened)
        raise _too_large(path, words.size(size), limit)
    return os.fdopen(opened, "rb")


def read_bytes(path: Path, limit: int) -> bytes:
    """A plain file's content; it may grow while it is read, but not beyond the limit."""
    blocks, size = [], 0
    with open_plain(path, limit) as file:
        while block := file.read(BLOCK):
            blocks.append(block)
            size += len(block)
            if size > limit:
                raise _too_large(path, "more", limit)
    return b"".join(blocks)


def read_tail(path: Path, size: int) -> bytes:
    """The last bytes of a plain file, however long it is."""
    with open_plain(path, sys.maxsize) as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - size))
        return file.read(size)


def read_lines(path: Path, limit: int) -> Iterator[bytes]:
    """A plain file's lines, each with its end; the last one may lack it."""
    size = 0
    with open_plain(path, limit) as file:
        for number in itertools.count(1):
            line = file.readline(LINE_BYTES + 1)
            size += len(line)
            if len(line) > LINE_BYTES:
                raise StorageError(
                    f"line {number} of {path} is longer than {words.size(LINE_BYTES)}: it was not "
                    "written by svea. Remove the line, or the file"
                )
            if size > limit:
                raise _too_large(path, "more", limit)
            if not line:
                return
            yield line


def verify(path: Path, wanted: dict[str, Any], limit: int) -> None:
    """Refuse a file that is not byte for byte what was written.

    Args:
        path: of the file.
        wanted: its `size` and `sha256`, as `files.write` returned them.
        limit: bytes that it may have at most.

    Raises:
        ValueError: It is missing, or another.
    """
    try:
        file = open_plain(path, limit)
    except FileNotFoundError:
        raise ValueError(f"{path.name} is missing") from None
    with file:
        size = os.fstat(file.fileno()).st_size
        if size != wanted["size"]:
            raise ValueError(f"{path.name} has {size} bytes, {wanted['size']} were written")
        if hashlib.file_digest(file, "sha256").hexdigest() != wanted["sha256"]:
            raise ValueError(f"{path.name} has changed since it was written")


def read_json(path: Path, limit: int) -> Any:
    """A plain file as JSON.

    Raises:
        StorageError: It is not a plain file, or too large.
        ValueError: It is not JSON as we write it.
        OSError: As `open_plain`.
    """
    return parse_json(read_bytes(path, limit))


def parse_json(content: bytes) -> Any:
    """JSON whose texts can be printed and whose numbers fit a float.

    Raises:
        ValueError: It is damaged, nests too deep, or holds what other programs cannot take: half a
            surrogate pair, or an integer beyond a float's range.
    """
    if _TOO_MANY_DIGITS.search(content):
        raise ValueError("a number has more than 308 digits")
    try:
        value = json.loads(content.decode())
        if b"\\ud" in content.lower():  # surrogates stand in files as \ud800 to \udfff
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ValueError("a text has half a surrogate pair") from None
    except RecursionError:
        raise ValueError("it nests too deep") from None
    return value


def _not_plain(path: Path, mode: int) -> StorageError:
    kind = _KINDS.get(stat.S_IFMT(mode), "something else")
    return StorageError(f"{path} is {kind}, not a plain file. Remove it, or restore it from a copy")


def _too_large(path: Path, size: str, limit: int) -> StorageError:
    return StorageError(
        f"{path} has {size}, and at most {words.size(limit)} are read of such a file: it was not "
        "written by svea. Remove it, or restore it from a copy"
    )
