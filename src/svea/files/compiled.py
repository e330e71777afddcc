"""Code that is compiled on the machine that runs it, and kept on disk.

A file's name says what it was made from, and its end that it is whole.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from svea import files
from svea.errors import StorageError, UserError

HASH = 32  # bytes of a SHA-256
OPTIMISE = ("-O3", "-fno-math-errno", "-fno-trapping-math")


class BuildError(UserError):
    """Something cannot be compiled or loaded here; the message says what is in the way."""


def load_c(parts: Sequence[Path], options: Sequence[str]) -> ctypes.CDLL:
    """A library of C, compiled unless an earlier process did it.

    Args:
        parts: The source, and the files that it includes.
        options: Of the compiler.
    """
    if sys.platform != "linux":
        raise BuildError("they are made for Linux")
    try:
        file = c_path(parts, options)
        if not is_whole(file):
            with _alone(file.parent):
                if not is_whole(file):
                    build_c(parts[0], options, file)
        return ctypes.CDLL(str(file))
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace")[:500]
        raise BuildError(f"{error.cmd[0]} says: {said}") from error
    except (OSError, RuntimeError, StorageError) as error:  # RuntimeError: there is no home folder
        raise BuildError(f"{error}; XDG_CACHE_HOME says where compiled kernels are kept") from error


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """A region for one process at a time: workers that begin together need not all compile."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def c_path(parts: Sequence[Path], options: Sequence[str]) -> Path:
    """Where a library lies. Its name says what it was made from and for which processor.

    Home folders may be shared by unlike machines. The compiler is not part of it: a run that
    resumes where the compiler is gone, or is another one, keeps its bits.
    """
    sources = (part.read_text() for part in parts)
    return path_for((*sources, *options, native(), processor()), "so")


def build_c(source: Path, options: Sequence[str], file: Path) -> None:
    """Compile a source into a library."""
    compiler = shutil.which(os.environ.get("CC") or "gcc") or shutil.which("cc")
    if compiler is None:
        raise BuildError("a C compiler (gcc) is not installed")
    with tempfile.TemporaryDirectory() as folder:
        linked = f"{folder}/kernels.so"
        made_as = [*options, native(), "-pthread", "-fPIC", "-shared"]
        command = [compiler, *made_as, str(source), "-o", linked, "-lm"]
        subprocess.run(command, check=True, capture_output=True)
        content = Path(linked).read_bytes()
    write(file, content)


def native() -> str:
    """The compiler's option for this machine's own instructions."""
    return "-march=native" if platform.machine() == "x86_64" else "-mcpu=native"


def processor() -> str:
    """What tells processors with other instructions apart."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    named = ("model name", "flags", "Features", "CPU part")
    return "\n".join(sorted({line for line in lines if line.startswith(named)}))


def path_for(made_from: Iterable[str], suffix: str) -> Path:
    """Where code lies that was made from these texts."""
    name = hashlib.sha256("\n".join(made_from).encode()).hexdigest()[:16]
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "svea" / f"kernels-{name}.{suffix}"


def is_whole(file: Path) -> bool:
    """Whether a file is there and ends with its own hash; damaged code would crash Python."""
    content = file.read_bytes() if file.exists() else b""
    return hashlib.sha256(content[:-HASH]).digest() == content[-HASH:]


def write(file: Path, content: bytes) -> None:
    """Keep code; several processes may do so at once, and each leaves a whole file."""
    files.make_folder(file.parent)
    files.replace(file, [content, hashlib.sha256(content).digest()])
