"""The parent's side of an agent's process: start it, ask it, end it. No torch."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import socket
from typing import Any

from svea.core import process
from svea.core.errors import SveaError, WorkerError
from svea.core.machine import usable_cores
from svea.envs.rendering import backend
from svea.play import wire
from svea.play.setting import Setting

START_SECONDS = 120.0  # import torch and the simulator, on a busy machine
ANSWER_SECONDS = 30.0
END_SECONDS = 2.0


class AgentProcess:
    """A process that plays one seat. It ends with its socket, and with this process."""

    def __init__(self, number: int, seat: dict[str, Any], seats: int) -> None:
        """Take who plays.

        Args:
            number: Of the seat on the page.
            seat: Fields of `player.Seat`.
            seats: How many share this machine's cores.
        """
        self.number, self._seat = number, seat
        self._threads = max(1, usable_cores() // seats)
        self.about: dict[str, Any] = {}
        self._process: process.Child | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._asking = asyncio.Lock()

    @property
    def pid(self) -> int | None:
        """Of the process."""
        return self._process.pid if self._process else None

    async def start(self, setting: Setting) -> None:
        """Start the process and wait until it has loaded its agent."""
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = process.start(
                "svea.play.process:main", theirs.fileno(), pass_fds=[theirs.fileno()],
                variables=backend.environment_of_workers(),
            )  # fmt: skip
        self._reader, self._writer = await asyncio.open_connection(sock=ours)
        greeting = {"agent": self.number, "seat": self._seat, "threads": self._threads}
        answer = await self._exchange(greeting | _with(setting), START_SECONDS)
        if "error" in answer.header:
            raise SveaError(answer.header["error"])
        self.about = answer.header["about"]

    async def ask(self, do: str, setting: Setting, draw: bool = True) -> wire.Packet:
        """Let it begin an episode, change the look, or decide; returns its answer."""
        return await self._exchange({"do": do, "draw": draw} | _with(setting), ANSWER_SECONDS)

    async def close(self) -> None:
        """End the process: closing its socket asks it to; a kill follows if it does not."""
        if self._writer is not None:
            self._writer.close()
        child, self._process = self._process, None
        if child is not None:
            await asyncio.to_thread(child.end, END_SECONDS)

    async def _exchange(self, command: dict[str, Any], seconds: float) -> wire.Packet:
        """Send a line and wait for a packet."""
        assert self._writer is not None
        try:
            async with self._asking, asyncio.timeout(seconds):
                self._writer.write(json.dumps(command).encode() + b"\n")
                (length,) = wire.FRAME.unpack(await self._reader.readexactly(wire.FRAME.size))
                if length > wire.LARGEST:
                    raise WorkerError(f"it sent {length:,} bytes; allowed: {wire.LARGEST:,}")
                return wire.unpack(await self._reader.readexactly(length))
        except TimeoutError:
            raise WorkerError(f"it did not answer in {seconds:.0f} s") from None
        except (OSError, asyncio.IncompleteReadError):
            raise WorkerError("its process died") from None


def _with(setting: Setting) -> dict[str, Any]:
    return {"setting": dataclasses.asdict(setting)}
