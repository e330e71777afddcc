"""Code that is compiled on the machine that runs it, and kept on disk.

A file's name says what it was made from, and its end that it is whole. What another user could
have written is never loaded: folder and files are this user's, and no other may write to them.
"""

import contextlib
import ctypes
import hashlib
import os
import platform
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from svea.core import files, process
from svea.core.errors import StorageError, UserError

LARGEST = 2**28  # bytes of a library; the kernels take a megabyte
COMPILER_SECONDS = 300.0  # that a compiler has; the largest source takes seconds
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
OPTIMISE = ("-O3", "-fno-math-errno", "-fno-trapping-math")


class BuildError(UserError):
    """Something cannot be compiled or loaded here; the message says what is in the way."""


def load_c(parts: Sequence[Path], options: Sequence[str], symbol: str) -> ctypes.CDLL:
    """A library of C from a source and what it includes; the symbol is a function it must have."""
    if sys.platform != "linux":
        raise BuildError("they are made for Linux")
    try:
        path = c_path(parts, options)
        own_folder(path.parent)
        if not read(path):
            with files.locked(path.parent, _too_slow("another process"), COMPILER_SECONDS):
                if not read(path):
                    build_c(parts[0], options, path)
        made = ctypes.CDLL(str(path))
        if not hasattr(made, symbol):
            raise BuildError(f"{path} has no function {symbol}, so it is not ours. Remove it")
        return made
    except (OSError, RuntimeError, StorageError) as error:  # RuntimeError: there is no home folder
        raise BuildError(f"{error}; XDG_CACHE_HOME says where compiled kernels are kept") from error


def own_folder(path: Path) -> None:
    """Make a folder of compiled code, if need be; nobody but this user may write to it."""
    files.make_folder(path)
    about = path.stat()
    if about.st_uid != os.getuid():
        raise PermissionError(f"{path} belongs to another user")
    if about.st_mode & OTHERS_WRITE:
        path.chmod(0o700)


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
        made_as = [*options, native(), "-pthread", "-fPIC", "-shared", str(source), "-o", linked]
        done = process.run([compiler, *made_as, "-lm"], COMPILER_SECONDS)
        if done is None:
            raise _too_slow(compiler)
        if done.returncode:
            raise BuildError(f"{compiler} says: {done.stderr[:500]}")
        write(file, Path(linked).read_bytes())


def _too_slow(who: str) -> BuildError:
    return BuildError(f"{who} is still compiling after {COMPILER_SECONDS:g} s")


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
    name = files.sha256("\n".join(made_from))[:16]
    home = os.environ.get("XDG_CACHE_HOME", "")
    home = home if os.path.isabs(home) else str(Path.home() / ".cache")  # as XDG says
    return Path(home) / "svea" / f"kernels-{name}.{suffix}"


def read(file: Path) -> bytes:
    """This user's code, if it ends with its own hash; damaged code would crash Python."""
    with contextlib.suppress(OSError, StorageError), files.open_plain(file, LARGEST) as opened:
        about, content = os.fstat(opened.fileno()), opened.read(LARGEST)
        ours = about.st_uid == os.getuid() and not about.st_mode & OTHERS_WRITE
        code, kept = content[:-32], content[-32:]
        if ours and hashlib.sha256(code).digest() == kept:
            return code
    return b""


def write(file: Path, content: bytes) -> None:
    """Keep code; several processes may do so at once, and each leaves a whole file."""
    unfinished = files.partial(file)
    files.write(unfinished, [content, hashlib.sha256(content).digest()])
    os.chmod(unfinished, 0o600)
    files.rename(unfinished, file)
