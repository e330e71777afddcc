"""A worker as its parent sees it: a process, its environments, their memory, the line to it."""

import contextlib
import json
import math
import mmap
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import IO, Any

import numpy as np

from svea.config.modes import is_foreign
from svea.core import given as given_tasks
from svea.core.errors import NumericsError, RendererError, SveaError, UserError, WorkerError
from svea.core.importing import where_stuck
from svea.core.process import Child, start
from svea.envs.rendering import backend, renderer

SEND_SECONDS = 30.0  # a process that does not read for longer is stuck
PATIENT_SECONDS = 30.0  # without an answer, until it is said where a process without a limit is
_RAISED = {kind.__name__: kind for kind in (UserError, RendererError, NumericsError)}


class RaisedError(WorkerError):
    """An exception in an environment's own code."""


class Worker:
    """A process and the environments in it; it can be started again after it died or hung."""

    process: Child
    _received: bytes  # of which no line is complete yet, or read

    def __init__(self, first: int, environments: list[dict[str, Any]], count: int) -> None:
        """Start the process of some of `count` environments, numbered from `first` on."""
        self.first, self.environments, self._count = first, environments, count
        self.ready = False  # it has described its spaces
        self.pending: dict[int, dict[str, Any]] = {}  # commands not yet answered
        self.is_foreign = is_foreign(str(environments[0].get("task", "")))
        self._waited = False
        self._start()

    @property
    def indices(self) -> range:
        """Of the environments."""
        return range(self.first, self.first + len(self.environments))

    def __str__(self) -> str:
        if len(self.indices) == 1:
            return f"environment {self.first}"
        return f"environments {self.first} to {self.indices[-1]}"

    def restart(self) -> None:
        """Put a new process in the place of a dead or stuck one."""
        self.process.kill()
        self.process.wait()
        self.disconnect()
        self._start()

    def disconnect(self) -> None:
        """Close the line, which asks the process to end."""
        for end in (self._socket, self._last_words):
            end.close()

    def hand_memory(self, memory: IO[bytes]) -> None:
        """Send the shared memory of all environments to the process."""
        with contextlib.suppress(OSError):
            socket.send_fds(self._socket, [b"."], [memory.fileno()])

    def send(self, message: Any) -> None:
        """Send one line; whether the process is gone or stuck, reading its answer will tell."""
        self._socket.settimeout(SEND_SECONDS)
        with contextlib.suppress(OSError):
            self._socket.sendall(json.dumps(message).encode() + b"\n")

    def read(
        self, seconds: float, on_wait: Callable[[WorkerError], None] = lambda error: None
    ) -> list[dict[str, Any]]:
        """Read the answers of the environments; raise what one raised, or how the process ended.

        With infinite seconds a process may take forever. Where it is, if it takes long, `on_wait`
        is told once in its life.
        """
        drawing, patience = False, seconds
        while True:
            try:
                line = self._read_line(patience, on_wait)
            except TimeoutError:
                if drawing and not self.ready:
                    raise RendererError(
                        f"{self}: no first picture in {patience:.0f} s; the OpenGL "
                        "driver is stuck. Set MUJOCO_GL=osmesa to draw in software."
                    ) from None
                raise self._hang(patience) from None
            except OSError:
                raise self._death() from None
            if not line:
                raise self._death()
            said = json.loads(line)
            if "drawing" not in said:
                for answer in said["answers"]:
                    if "error" in answer:
                        raise _raised(answer)
                return said["answers"]
            drawing, patience = said["drawing"], seconds
            if drawing and backend.can_fall_back():  # else waiting is all that is left
                patience = min(seconds, renderer.FIRST_PICTURE_SECONDS)

    def _read_line(self, seconds: float, on_wait: Callable[[WorkerError], None]) -> bytes:
        """The next line; nothing if the process closed its end."""
        for_ever = math.isinf(seconds)
        while b"\n" not in self._received:
            says_where = for_ever and not self._waited
            self._socket.settimeout(
                PATIENT_SECONDS if says_where else None if for_ever else seconds
            )
            try:
                received = self._socket.recv(1 << 16)
            except TimeoutError:
                if not says_where:
                    raise
                self._waited = True
                on_wait(self._hang(PATIENT_SECONDS))
                continue
            if not received:
                return b""
            self._can_tell_stack = True
            self._received += received
        line, _, self._received = self._received.partition(b"\n")
        return line

    def _start(self) -> None:
        given = given_tasks.pack(str(one.get("task", "")) for one in self.environments)
        greeting = {"first": self.first, "environments": self.environments, "count": self._count}
        self._socket, theirs = socket.socketpair()
        self._last_words = anonymous_file("svea-last-words")  # the stack of a crash
        with theirs:
            ends = [theirs.fileno(), self._last_words.fileno()]
            self.process = start(
                "svea.envs.workers.process:main", *ends, pass_fds=ends,
                variables=backend.environment_of_workers(),
            )  # fmt: skip
        self._received = b""
        self._can_tell_stack = False
        self.send(greeting | {"given": given})

    def _hang(self, seconds: float) -> WorkerError:
        """The error for a process that does not answer, with its stack if it can write it."""
        if self._can_tell_stack:
            with contextlib.suppress(OSError):
                self.process.send_signal(signal.SIGUSR1)  # asks for its stack
                time.sleep(0.5)
        why = "Is the machine overloaded, or the renderer stuck?"
        if self.is_foreign:
            why = "Your step() or reset()?" if self.ready else "Does your environment start slowly?"
        silent = f"{self} (process {self.process.pid}) did not answer in {seconds:g} s. {why}"
        error = self._with_last_words(silent)
        if self.is_foreign and (where := where_stuck("".join(getattr(error, "__notes__", [])))):
            error.args = (f"{silent} It is at {where}",)
        return error

    def _death(self) -> WorkerError:
        try:
            status: int | None = self.process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            status = None
        cure = "If the machine ran out of memory, use fewer environments (--envs)."
        if status == -signal.SIGBUS:  # a page of a file could not be had
            cure = "A disk that it writes to is full."
        how = f"signal {-status}" if status and status < 0 else f"exit status {status}"
        return self._with_last_words(f"{self} (process {self.process.pid}) died with {how}. {cure}")

    def _with_last_words(self, message: str) -> WorkerError:
        """An error with the stack that a crashing process wrote."""
        error = WorkerError(message)
        self._last_words.seek(0)
        if said := self._last_words.read(16_384).decode(errors="replace").strip():
            error.add_note(said)
        return error


def _raised(answer: dict[str, Any]) -> SveaError:
    """The error that an environment reports, in its own class where it is one of ours."""
    if answer["error"] in _RAISED:
        return _RAISED[answer["error"]](answer["message"])
    where = f" ({answer['where']})" if answer.get("where") else ""
    error = RaisedError(
        f"environment {answer['environment']} raised {answer['error']}: {answer['message']}{where}"
    )
    error.add_note(answer["trace"])
    return error


class Shared:
    """Views into the shared memory: actions, observations, last ones of ended episodes."""

    def __init__(self, file: int, count: int, shape: Sequence[int], actions: int) -> None:
        pixels, start = 2 * count * math.prod(shape), -(-4 * count * actions // 64) * 64
        os.ftruncate(file, start + pixels)
        self._map = mmap.mmap(file, start + pixels)
        self.actions = np.frombuffer(self._map, np.float32, count * actions).reshape(count, actions)
        seen = np.frombuffer(self._map, np.uint8, pixels, start)
        self.observations, self.finals = seen.reshape(2, count, *shape)


def anonymous_file(name: str) -> IO[bytes]:
    """An anonymous file: it has no path, so nothing stays on disk."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create(name), "r+b", buffering=0)
    return tempfile.TemporaryFile(buffering=0)
