"""Files that are whole or absent when written, and plain and bounded when read.

A file is written under another name, synced, and renamed; then its folder is synced. Each step is
one call of module `os`, made here and nowhere else, so that a test can fail or kill every one.

A run or data folder may come from anywhere: a pipe would block forever, a device never end, and a
sparse file of a terabyte takes no room on its sender's disk. So only plain files are read, each
within a limit that its kind sets.
"""

import contextlib
import errno
import fcntl
import glob
import hashlib
import io
import json
import os
import re
import reprlib
import shutil
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from svea.core import words
from svea.core.errors import NumericsError, StorageError, UserError
from svea.core.terminal import warn

BLOCK = 2**22  # bytes in one system call
LINE_BYTES = 2**24  # a longer line of a log is damage
TAIL_BYTES = 2**18  # in which the last line of ours begins
LAST_BYTES = 2**16  # of a log: enough for the last evaluation in a dozen modes
LOCK_POLL_SECONDS = 0.05
LONGEST_NAME, LONGEST_PATH = 255, 4095  # bytes that Linux allows
PARTIAL = ".partial"
"""End of the names of files being written; the next writer removes those a killed one left."""

OVERHEAD = 0.02  # of a file system, as a share of the large files
SMALL_FILES = 10**6  # bytes of those next to them

Bytes = bytes | memoryview


def write(path: Path, blocks: Iterable[Bytes]) -> dict[str, Any]:
    """Write a file and sync it; its `size` and `sha256`, computed on the way."""
    digest, size = hashlib.sha256(), 0
    with closing(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)) as opened:
        for block in blocks:
            digest.update(block)
            size += _write_all(opened, block)
        os.fsync(opened)
    return {"size": size, "sha256": digest.hexdigest()}


def to_json(value: Any) -> bytes:
    """JSON as it is kept in files; it has no NaN and no infinity."""
    try:
        return (json.dumps(value, indent=1, allow_nan=False) + "\n").encode()
    except ValueError as error:
        raise NumericsError(f"a number to be saved is not finite: {error}") from error


@contextlib.contextmanager
def replacing(path: Path, needed: int | None = None) -> Iterator[Path]:
    """The name under which a file or folder is to be written, whole or not at all.

    At the end it is synced and gets its own name. What killed processes left of it goes first.
    """
    with writing(path, needed):
        make_folder(path.parent)
        sweep_one(path)
        unfinished = partial(path)
        yield unfinished
        sync(unfinished)
        rename(unfinished, path)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file whole or not at all, making its folder; a failure is a StorageError."""
    with replacing(path, len(content)) as unfinished:
        write(unfinished, [content])


def replace_json(path: Path, value: Any) -> None:
    """Write JSON whole or not at all; a failure is a StorageError."""
    write_whole(path, to_json(value))


def rename(source: Path, target: Path) -> None:
    """Give a synced file or folder its name, and sync the name too."""
    os.replace(source, target)
    sync(target.parent)


def partial(path: Path) -> Path:
    """The name under which a file or folder is written before it gets its own."""
    return path.with_name(f".{path.name}.{os.getpid()}{PARTIAL}")


def sweep(folder: Path) -> None:
    """Remove what killed processes were writing in a folder of which this one has the lock."""
    for path in folder.glob(f".*{PARTIAL}"):
        remove(path)


def sweep_one(path: Path) -> None:
    """Remove what killed processes left of one file or folder; a live one may be at work on it."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.*{PARTIAL}"):
        try:
            os.kill(int(left.name.removesuffix(PARTIAL).rpartition(".")[2]), 0)
        except PermissionError:
            continue  # it is another user's
        except (ProcessLookupError, ValueError, OverflowError):
            remove(left)


def make_folder(path: Path) -> None:
    """Make a folder and those above it, and sync their names."""
    if not path.is_dir():
        make_folder(path.parent)
        os.mkdir(path)
        sync(path.parent)


def remove(path: Path) -> None:
    """Remove a file, or a folder of files."""
    if path.is_dir() and not path.is_symlink():
        for name in os.listdir(path):
            os.unlink(path / name)
        os.rmdir(path)
    else:
        os.unlink(path)


def sync(path: Path) -> None:
    """Force a file, or a folder's entries, onto the disk."""
    with closing(os.open(path, os.O_RDONLY)) as opened:
        os.fsync(opened)


@contextlib.contextmanager
def closing(opened: int) -> Iterator[int]:
    """A region after which a descriptor is closed."""
    try:
        yield opened
    finally:
        os.close(opened)


def cut(path: Path, size: int) -> int:
    """Cut a file of lines off at a size, not padding it; make it if need be. Its size then."""
    with writing(path), closing(descriptor(path, os.O_WRONLY | os.O_CREAT)) as opened:
        size = min(size, os.lseek(opened, 0, os.SEEK_END))
        os.ftruncate(opened, size)
    return size


def append(opened: int, lines: bytes) -> None:
    """Write whole lines at the end of an open file, or none of them."""
    end = os.lseek(opened, 0, os.SEEK_END)
    try:
        _write_all(opened, lines)
    except OSError:
        with contextlib.suppress(OSError):
            os.ftruncate(opened, end)
        raise


def append_lines(path: Path, lines: bytes) -> int:
    """Put whole lines at the end of a file, in place of the half line that a killed writer left.

    Processes take turns; a last line that only lacks its end is kept. Returns the file's size.
    """
    flags = os.O_RDWR | os.O_CREAT
    with writing(path, len(lines)), closing(descriptor(path, flags)) as opened:
        with contextlib.suppress(OSError):  # some network disks have no locks
            lock(opened, float("inf"))
        end = os.lseek(opened, 0, os.SEEK_END)
        last = os.pread(opened, TAIL_BYTES, max(0, end - TAIL_BYTES))
        if tail := last.rpartition(b"\n")[2]:
            end, lines = (end, b"\n" + lines) if parse_line(tail) else (end - len(tail), lines)
            os.ftruncate(opened, end)
        append(opened, lines)
    return end + len(lines)


def lock(opened: int, seconds: float = 0.0) -> bool:
    """Lock an open file for this process and those that inherit it; whether that succeeded.

    The system frees a lock when its holders die, however they die; another holder is given some
    seconds to end. On a disk without locks, as some network disks are, this is an OSError.
    """
    end = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= end:
                return False
            time.sleep(LOCK_POLL_SECONDS)


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock on a file."""
    with contextlib.suppress(FileNotFoundError), open_plain(path, sys.maxsize) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


@contextlib.contextmanager
def locked(folder: Path, busy: Exception, seconds: float = 0.0) -> Iterator[None]:
    """A region for one process at a time; `busy` is raised if another one does not leave it."""
    with closing(os.open(folder, os.O_RDONLY)) as opened:
        try:
            if not lock(opened, seconds):
                raise busy
        except OSError as error:
            warn(f"{folder} cannot be locked: {error.strerror}")
        yield


@contextlib.contextmanager
def writing(path: Path, needed: int | None = None, reassurance: str = "") -> Iterator[None]:
    """Turn a failed write into a StorageError, and leave nothing half-written.

    The message says how many bytes are `needed`, and the `reassurance` what is not lost.
    """
    try:
        yield
    except BaseException as error:
        with contextlib.suppress(OSError):
            remove(partial(path))
        if not isinstance(error, OSError):
            raise
        room = [] if needed is None else [f"{words.size(needed)} needed"]
        with contextlib.suppress(OSError):
            room += [f"{words.size(shutil.disk_usage(_existing(path)).free)} free there"]
        raise StorageError(
            f"cannot write {path}: {error.strerror or error} ({', '.join(room)}). {reassurance}"
            "Free some space, fix the permissions or move away what is in the way; then run the "
            "command again"
        ) from error


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn a failed read into a StorageError."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"cannot read {error.filename or path}: {error.strerror or error}; restore it"
        ) from error


def require_space(
    path: Path,
    needed: int,
    purpose: str,
    cure: str = "Free some space, or name a folder on another disk with --out",
) -> None:
    """Refuse to begin what cannot be finished: large files of this size below a future folder."""
    needed, free = at_most(needed), shutil.disk_usage(_existing(path)).free
    if needed > free:
        has = f"{words.size(needed)} in {path}, where {words.size(free)} are free"
        raise StorageError(f"{purpose} will need {has}. {cure}")


def at_most(needed: int) -> int:
    """Bytes that a disk needs for large files of this size and the small ones next to them."""
    return round(max(needed, 0) * (1 + OVERHEAD)) + SMALL_FILES


def size_of(folder: Path) -> int:
    """Bytes in a folder's files, subfolders included; 0 where there is none."""
    sizes = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):  # removed meanwhile
            sizes += path.stat().st_size if path.is_file() else 0
    return sizes


def sha256(content: bytes | str) -> str:
    """The SHA-256 of bytes or of a text, in hexadecimal digits."""
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()


def file_sha256(path: Path, limit: int) -> str:
    """The SHA-256 of a plain file of at most `limit` bytes."""
    with open_plain(path, limit) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def seal(content: dict[str, Any]) -> str:
    """SHA-256 of a JSON object, to be kept in the object itself: no other file has its hash."""
    return sha256(json.dumps(content, sort_keys=True))


def _write_all(descriptor: int, data: Bytes) -> int:
    """Write all of the data; the system may take it in parts."""
    view, done = memoryview(data), 0
    while done < len(view):
        done += os.write(descriptor, view[done : done + BLOCK])
    return done


def _existing(path: Path) -> Path:
    """The nearest folder above that exists."""
    return path if path.is_dir() else _existing(path.absolute().parent)


def descriptor(path: Path, flags: int) -> int:
    """A descriptor of a plain file; anything else is refused without waiting for it."""
    if path.exists() and not path.is_file():
        raise StorageError(f"{path} is not a plain file. Remove it, or restore it from a copy")
    return os.open(path, flags, 0o666)


def open_plain(path: Path, limit: int) -> io.BufferedReader:
    """Open a plain file of at most `limit` bytes for reading; anything else is a StorageError."""
    opened = descriptor(path, os.O_RDONLY)
    if (size := os.fstat(opened).st_size) > limit:
        os.close(opened)
        raise _too_large(path, size, limit)
    return os.fdopen(opened, "rb")


def read_bytes(path: Path, limit: int) -> bytes:
    """A plain file's content, of at most `limit` bytes, also if it grew meanwhile."""
    with open_plain(path, limit) as file:
        content = file.read()
    if len(content) > limit:
        raise _too_large(path, len(content), limit)
    return content


def last_lines(path: Path) -> list[bytes]:
    """The whole lines among the last bytes of a plain file; none where it cannot be read."""
    with contextlib.suppress(OSError, StorageError), open_plain(path, sys.maxsize) as file:
        start = max(0, os.fstat(file.fileno()).st_size - LAST_BYTES)
        file.seek(start)
        return file.read(LAST_BYTES).splitlines()[start > 0 :]  # the first may have begun before
    return []


def read_lines(path: Path, limit: int) -> Iterator[bytes]:
    """A plain file's lines, each with its end; the last one may lack it."""
    with open_plain(path, limit) as file:
        lines = iter(lambda: file.readline(LINE_BYTES + 1), b"")
        for number, line in enumerate(lines, start=1):
            if len(line) > LINE_BYTES:
                raise StorageError(
                    f"line {number} of {path} is longer than {words.size(LINE_BYTES)}: it was not "
                    "written by svea. Remove the line, or the file"
                )
            yield line


def verify(path: Path, wanted: dict[str, Any], limit: int) -> None:
    """A ValueError unless a file is byte for byte what `write` described."""
    if file_sha256(path, limit) != wanted["sha256"]:
        raise ValueError(f"{path.name} has changed since it was written")


def read_json(path: Path, limit: int) -> Any:
    """A plain file as JSON; a ValueError if it is not JSON as we write it."""
    try:
        return parse_json(read_bytes(path, limit))
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}") from error


def parse_json(content: bytes) -> Any:
    """JSON whose texts can be printed and whose numbers fit a float; else a ValueError."""
    if re.search(rb"\d{309}", content):
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


def parse_line(line: bytes) -> dict[str, Any] | None:
    """A line as a JSON object; None where it is damaged, or something else."""
    try:
        record = parse_json(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def json_lines(
    path: Path, limit: int, parse: Callable[[bytes], dict[str, Any] | None] = parse_line
) -> list[dict[str, Any]]:
    """The objects in a file, line by line, damaged ones left out; none where there is no file."""
    with reading(path), contextlib.suppress(FileNotFoundError):
        found = map(parse, read_lines(path, limit))
        return [record for record in found if record is not None]
    return []


def _too_large(path: Path, size: int, limit: int) -> StorageError:
    return StorageError(
        f"{path} has {words.size(size)}, and at most {words.size(limit)} are read of such a file: "
        "it was not written by svea. Remove it, or restore it from a copy"
    )


def check_path(path: str | Path, name: str = "path") -> None:
    """Refuse a path that no folder can hold, whatever is there: too long, or not text."""
    text = os.fspath(path)
    try:
        longest = max((len(part.encode()) for part in Path(text).parts), default=0)
        too_long = longest > LONGEST_NAME or len(text.encode()) > LONGEST_PATH
    except UnicodeEncodeError:  # bytes that are not UTF-8; weights could not be saved there
        raise UserError(f"{name} is {text!r}, which is not UTF-8; use another name") from None
    if too_long or "\0" in text:
        raise UserError(
            f"{name} is {reprlib.repr(text)}; allowed: {LONGEST_NAME} bytes between slashes, "
            f"{LONGEST_PATH} in all, and no zero byte"
        )


def output_file(path: Path) -> Path:
    """The path of a file to be written, or replaced; refused where that cannot work."""
    return output_folder(path, "out", (stat.S_IFREG, stat.S_IFDIR), "a plain file")


def output_folder(
    path: Path, name: str = "out", kinds: Iterable[int] = (stat.S_IFDIR,), what: str = "a folder"
) -> Path:
    """The path of a folder to write into, which need not exist; refused where that cannot work."""
    check_path(path, name)
    try:
        possible = stat.S_IFMT(os.stat(path).st_mode) in kinds
    except FileNotFoundError:
        possible = not os.path.islink(path)
    except OSError as error:  # a lack of permission is an error of what writes there
        possible = error.errno not in (errno.ENOTDIR, errno.ELOOP)
    if not possible:
        raise UserError(f"{name} is {str(path)!r}, which cannot be {what}; name another place")
    return path
