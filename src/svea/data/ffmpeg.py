"""ffmpeg as a process: found, started, fed and read; stopped when it does not answer.

Every use of ffmpeg goes through here, so that a broken installation ends in one message that names
it, within seconds, whatever was being decoded or encoded.
"""

import contextlib
import functools
import os
import select
import signal
import subprocess
import threading
from collections.abc import Sequence
from typing import Self

from svea.core import process
from svea.core.errors import UserError
from svea.core.words import one_line

START_SECONDS = 10.0  # an ffmpeg that does not tell its version within this time is not usable
SILENT_SECONDS = 20.0  # ffmpeg is stopped if for this long it neither gives nor takes anything

H264 = "libx264"  # our videos' encoder, which some builds of ffmpeg lack, for its licence

_CURE = (
    "Reinstall it (pip install --force-reinstall imageio-ffmpeg), or name another one in the "
    "variable IMAGEIO_FFMPEG_EXE"
)
_LONGEST_MESSAGE = 4096


class FfmpegError(UserError):
    """ffmpeg itself does not work, whatever the file."""


class Silent(Exception):
    """ffmpeg neither gave nor took anything for too long."""


def unusable(path: str, problem: str) -> FfmpegError:
    """The one message about an ffmpeg that is there and does not work."""
    return FfmpegError(f"ffmpeg ({path}) does not work: {problem}. {_CURE}")


def executable() -> str:
    """The ffmpeg to use: found, and asked for its version once."""
    try:
        from imageio_ffmpeg import get_ffmpeg_exe

        found = get_ffmpeg_exe()
    except (ImportError, RuntimeError, OSError) as error:
        raise FfmpegError(f"no ffmpeg was found: {one_line(error).rstrip('.')}. {_CURE}") from error
    output(found, "-version", seconds=START_SECONDS)
    return found


def encoder() -> str:
    """The ffmpeg to use, if it can encode H.264."""
    found = executable()
    if H264 not in output(found, "-hide_banner", "-encoders", seconds=START_SECONDS):
        raise unusable(found, f"it was built without {H264}, so it cannot write videos")
    return found


@functools.lru_cache(16)
def output(path: str, *arguments: str, seconds: float) -> str:
    """What a program prints, which must start, not fail, and answer in time."""
    try:
        done = process.run([path, *arguments], seconds)
    except OSError as error:
        raise unusable(path, f"it cannot be started: {one_line(error)}") from error
    if done is None:
        raise unusable(path, f"it did not answer within {seconds:g} s")
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        raise unusable(path, lines[-1] if lines else f"exit status {done.returncode}")
    return done.stdout


class Process:
    """A running ffmpeg, from whose output is read or to whose input is written.

    Where it neither gives, takes nor ends anything for `silent_seconds` (default `SILENT_SECONDS`),
    it is stopped, and `Silent` is raised. Leaving the block stops the program and its children,
    however it is left.
    """

    def __init__(
        self, command: Sequence[str], takes_input: bool = False, silent_seconds: float | None = None
    ) -> None:
        self._seconds = SILENT_SECONDS if silent_seconds is None else silent_seconds
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE if takes_input else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                process_group=0,  # so that what it starts is stopped with it
            )
        except OSError as error:
            raise unusable(command[0], f"it cannot be started: {one_line(error)}") from error
        assert self._process.stdout
        self._output = self._process.stdout.fileno()
        self._message = b""  # the end of what it complains of
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()
        self._listener.join(1.0)
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        self._process.wait()

    def read(self, size: int) -> bytes:
        """This many bytes of its output; fewer only at its end."""
        parts, missing = [], size
        while missing and self._ready(self._output):
            part = os.read(self._output, min(missing, 2**20))
            if not part:
                break
            parts.append(part)
            missing -= len(part)
        return b"".join(parts)

    def write(self, data: bytes) -> bool:
        """Give it input; False where it takes no more, for a reason that `finish` tells.

        What it puts out meanwhile (its progress) is dropped.
        """
        assert self._process.stdin is not None
        target, view = self._process.stdin.fileno(), memoryview(data)
        os.set_blocking(target, False)
        try:
            while view:
                ready = self._ready(self._output, target)
                if self._output in ready:
                    os.read(self._output, 2**16)
                if target in ready:
                    view = view[os.write(target, view[: 2**16]) :]
        except BrokenPipeError:
            return False
        return True

    def finish(self) -> str:
        """End its input, wait for its end, and return what went wrong; nothing if all is well."""
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        while self._ready(self._output) and os.read(self._output, 2**16):
            pass
        try:
            code = self._process.wait(self._seconds)
        except subprocess.TimeoutExpired:
            self.stop()
            raise Silent from None
        self._listener.join(self._seconds)
        lines = self._message.decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"exit status {code}" if code else ""

    def stop(self) -> None:
        """Kill it and what it has started."""
        if self._process.returncode is None:  # its number is not another's by now
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _ready(self, *descriptors: int) -> set[int]:
        """Which of its output and input can be used now, or have come to an end."""
        waits = select.poll()
        for one in descriptors:
            waits.register(one, select.POLLIN if one == self._output else select.POLLOUT)
        ready = {one for one, _ in waits.poll(1000 * self._seconds)}
        if not ready:
            self.stop()
            raise Silent
        return ready

    def _listen(self) -> None:
        """Keep the end of what it complains of; runs in its own thread."""
        assert self._process.stderr
        errors = self._process.stderr.fileno()
        with contextlib.suppress(OSError):  # closed, while something that it started holds it open
            while part := os.read(errors, 2**16):
                self._message = (self._message + part)[-_LONGEST_MESSAGE:]
