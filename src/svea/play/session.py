"""One page: its agents play in lockstep, and it is shown as many pictures as it can take. No torch.

The page confirms every picture it has shown. While two are on their way, decisions are played
without drawing: pictures are dropped, never queued. Numbers are not lost, they come with the next
picture.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import io
import json
import math
import socket
import struct
import time
from collections.abc import Collection, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from PIL import Image

from svea.core import process
from svea.core.errors import SveaError, UserError, WorkerError
from svea.core.machine import usable_cores
from svea.core.terminal import note
from svea.envs.rendering import backend
from svea.play.setting import DEFAULT, MOST_EPISODES, AgentSlot, Setting, read_setting
from svea.runs import layout, zoo

if TYPE_CHECKING:
    from starlette.websockets import WebSocket

START_SECONDS = 120.0  # import torch and the simulator, on a busy machine
ANSWER_SECONDS = 30.0
END_SECONDS = 2.0
ON_THEIR_WAY = 2
"""Pictures that a page may have received and not yet shown."""
FASTEST = 60.0
"""Decisions a second, at most."""
RESTARTS = 3
"""How often a page's dead agents are started again."""
FILM_SECONDS, FILM_PICTURES = 10.0, 1000
LONGEST_PICTURE = 1.0
"""Seconds that a picture stands in a film, at most: a pause is cut."""
CONSEQUENCES = {"lost": "it left the page", "restart": "started again", "problem": "paused"}
"""What comes of an agent's failure, for the terminal."""
MESSAGES: dict[str, set[str]] = {
    "set": {"setting"}, "shown": {"picture"}, "play": {"on"},
    "step": set(), "reset": set(), "record": set(),
}  # fmt: skip
"""What a page may say, and what belongs to it."""
LENGTH = struct.Struct("<I")


class Packet(NamedTuple):
    """An agent's answer: a JSON header and binary parts, and both as bytes.

    4 bytes, little endian: length of the header
    the header, whose "parts" are the lengths of what follows
    the parts: a JPEG of the scene, the pixels that the agent sees, what is laid over the newest,
        and JPEGs of the scene between the last decision and this one
    """

    header: dict[str, Any]
    parts: list[bytes]
    raw: bytes


def pack(header: dict[str, Any], *parts: bytes) -> bytes:
    """A packet as bytes."""
    text = json.dumps(header | {"parts": [len(part) for part in parts]}, allow_nan=False).encode()
    return b"".join([LENGTH.pack(len(text)), text, *parts])


def unpack(raw: bytes) -> Packet:
    """What `pack` was given.

    >>> unpack(pack({"agent": 1}, b"jpeg")).parts
    [b'jpeg']
    """
    stream = io.BytesIO(raw)
    (length,) = LENGTH.unpack(stream.read(LENGTH.size))
    header = json.loads(stream.read(length))
    return Packet(header, [stream.read(size) for size in header["parts"]], raw)


class AgentProcess:
    """A process in which one agent plays. It ends with its socket, and with this process."""

    def __init__(self, number: int, slot: AgentSlot, slots: int) -> None:
        """Take its number on the page, who plays, and how many share this machine's cores."""
        self.number, self.slot = number, slot
        self._threads = max(1, usable_cores() // slots)
        self.about: dict[str, Any] = {}
        self._process: process.Child | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._asking = asyncio.Lock()

    async def start(self, setting: Setting) -> None:
        """Start the process and wait until it has loaded its agent."""
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = process.start(
                "svea.play.player:main", theirs.fileno(), pass_fds=[theirs.fileno()],
                variables=backend.environment_of_workers(),
            )  # fmt: skip
        self._reader, self._writer = await asyncio.open_connection(sock=ours)
        start: dict[str, Any] = {"slot": dataclasses.asdict(self.slot), "threads": self._threads}
        answer = await self.ask("start", setting, **start)
        if "error" in answer.header:
            raise SveaError(answer.header["error"])
        self.about = answer.header["about"]

    async def close(self) -> None:
        """End the process: closing its socket asks it to; a kill follows if it does not."""
        if self._writer is not None:
            self._writer.close()
        child, self._process = self._process, None
        if child is not None:
            await asyncio.to_thread(child.end, END_SECONDS)

    async def ask(self, do: str, setting: Setting, draw: bool = True, **more: Any) -> Packet:
        """Let it begin an episode, change the look, or decide; returns its answer."""
        assert self._writer is not None
        seconds = START_SECONDS if do == "start" else ANSWER_SECONDS
        command = {"do": do, "agent": self.number, "setting": dataclasses.asdict(setting)}
        line = json.dumps(command | {"draw": draw} | more)
        try:
            async with self._asking, asyncio.timeout(seconds):
                self._writer.write(line.encode() + b"\n")
                (length,) = LENGTH.unpack(await self._reader.readexactly(LENGTH.size))
                return unpack(await self._reader.readexactly(length))
        except TimeoutError:
            raise WorkerError(f"it did not answer in {seconds:.0f} s") from None
        except (OSError, asyncio.IncompleteReadError):
            raise WorkerError("its process died") from None


@dataclasses.dataclass
class Film:
    """Pictures of agents, as they are played: ten seconds of what a page shows."""

    shown: list[list[Packet]] = dataclasses.field(default_factory=list)
    seconds: float = 0.0
    _at: float = 0.0

    def add(self, answers: list[Packet]) -> None:
        """One decision of every agent."""
        if answers and all(answer.parts for answer in answers):
            now = time.monotonic()
            self.seconds += min(now - self._at, LONGEST_PICTURE) if self.shown else 0.0
            self._at = now
            self.shown.append(answers)

    @property
    def is_whole(self) -> bool:
        """Whether it is long enough."""
        return self.seconds >= FILM_SECONDS or len(self.shown) >= FILM_PICTURES

    @property
    def rate(self) -> float:
        """Pictures a second, as they were played."""
        return (len(self.shown) - 1) / max(self.seconds, 1e-3)

    def write(self, path: Path) -> None:
        """Write an mp4 of all agents side by side."""
        from svea.evaluation.film import Recording, grid, write_video

        by_agent: dict[int, Recording] = {}
        side = 0
        for answer in (answer for answers in self.shown for answer in answers):
            header = answer.header
            picture = Image.open(io.BytesIO(answer.parts[0])).convert("RGB")
            side = side or picture.width  # the page may change the size meanwhile
            record = by_agent.setdefault(header["agent"], Recording(header["mode"]))
            record.pictures.append(np.asarray(picture.resize((side, side))))
            record.totals.append(header["return"])
            q = header["q"][-1] if header["q"] else None
            record.q.append(math.nan if q is None else q)
        write_video(path, grid([by_agent[k] for k in sorted(by_agent)]), self.rate)


class Session:
    """The agents of one page."""

    def __init__(
        self, slots: Sequence[AgentSlot], clips: Collection[str], films: list[Path], page: WebSocket
    ) -> None:
        """Take who plays, the server's films, and the page; nothing is started yet."""
        self.agents = [AgentProcess(k, slot, len(slots)) for k, slot in enumerate(slots)]
        self._names = [slot.run or slot.name for slot in slots]
        self._run = next((slot.run for slot in slots if slot.run), "")
        self._clips, self._films = clips, films
        self._page, self._sending = page, asyncio.Lock()
        self._wanted, self._played = DEFAULT, DEFAULT
        """The setting that the page asks for, and the one that agents play in."""
        self._playing, self._steps, self._begin = True, 0, True
        self._exact = False
        self._sent = self._shown = 0  # pictures
        self._changed = asyncio.Event()
        self._restarts = 0
        self._film: Film | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def hear(self, message: dict[str, Any]) -> None:
        """Take a message of the page; one that is not allowed raises."""
        if message.keys() - {"do"} != MESSAGES.get(do := message["do"]):
            raise UserError(f"a message {do[:20]!r} is not offered, or has not what it needs.")
        match message:
            case {"setting": setting}:
                self._wanted = read_setting(setting, self._clips, self._wanted)
            case {"picture": int(picture)} if 0 <= picture <= self._sent:
                self._shown = max(self._shown, picture)
            case {"on": bool(on)}:
                self._playing, self._steps = on, 0
            case {"do": "step"}:
                self._playing, self._steps = False, min(self._steps + 1, 10)
            case {"do": "reset"}:
                self._begin = True
            case {"do": "record"}:
                self._film = self._film or Film()
            case _:
                raise UserError(f"a message {do!r} has what is not offered.")
        self._changed.set()

    async def send(self, message: dict[str, Any] | bytes) -> None:
        """Send the page a message or a packet, one at a time."""
        async with self._sending:
            if isinstance(message, bytes):
                await self._page.send_bytes(message)
            else:
                await self._page.send_text(json.dumps(message))

    async def run(self) -> None:
        """Start the agents and play until cancelled."""
        await asyncio.gather(*(self._start(agent) for agent in self.agents))
        due = time.monotonic()
        while True:
            self._changed.clear()
            if not self.agents:
                raise WorkerError("no agent is left; the terminal says why")
            if await self._turn():
                due = max(due + 1 / self._rate, time.monotonic() - 0.5)
                await asyncio.sleep(max(0.0, due - time.monotonic()))
            else:
                await self._changed.wait()
                due = time.monotonic()

    async def close(self) -> None:
        """End every process."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*(agent.close() for agent in self.agents), return_exceptions=True)

    @property
    def _rate(self) -> float:
        """Decisions a second: the first agent's real time, faster or slower."""
        rates = [agent.about["rate"] for agent in self.agents if agent.about]
        return min(FASTEST, self._wanted.speed * rates[0]) if rates else FASTEST

    async def _start(self, agent: AgentProcess) -> None:
        """Start an agent's process; one that cannot be loaded leaves the page."""
        try:
            await agent.start(self._wanted)
            await self.send({"do": "agent", "agent": agent.number, "about": agent.about})
        except SveaError as error:
            await self._lose(agent, str(error))

    async def _lose(self, agent: AgentProcess, why: str) -> None:
        """Play on without an agent."""
        if agent in self.agents:
            self.agents.remove(agent)
        await agent.close()
        await self._tell("lost", agent, why)

    async def _tell(self, what: str, agent: AgentProcess, why: str) -> None:
        """Tell the page what went wrong, and the terminal, which stays when the page is closed."""
        name = self._names[agent.number]
        note(f"svea: {name}: {why} [{CONSEQUENCES[what]}]")
        await self.send({"do": what, "agent": agent.number, "why": why})

    async def _turn(self) -> bool:
        """Do what is due, once: begin, change the look, or decide; whether time has to pass."""
        before, self._played = self._played, self._wanted
        other = (before.seed, before.episode) != (self._played.seed, self._played.episode)
        if self._begin or other:
            self._begin, self._exact = False, self._played.is_exact
            await self._ask("begin", True)
            return self._playing
        if before.look != self._played.look:
            self._exact = False
        if self._playing or self._steps:
            self._steps = max(0, self._steps - 1)
            draw = not self._playing or self._sent - self._shown < ON_THEIR_WAY
            await self._ask("decide", draw or self._film is not None, show=draw)
            return True
        if before != self._played:
            await self._ask("change", True)
        return False

    async def _ask(self, do: str, draw: bool, show: bool = True) -> None:
        """Let all agents do the same, and show the page what they answered."""
        asked = (self._ask_one(agent, do, draw) for agent in list(self.agents))
        answers = [answer for answer in await asyncio.gather(*asked) if answer]
        if draw and show:
            self._sent += 1
            state = {
                "do": "picture",
                "picture": self._sent,
                "agents": [answer.header["agent"] for answer in answers],
                "exact": self._exact,
                "episode": self._played.episode,
                "seed": self._played.seed,
            }
            await self.send(state)
            for answer in answers:
                await self.send(answer.raw)
        if self._film is not None and do == "decide":
            await self._keep(self._film, answers)
        if answers and do == "decide" and all(answer.header["done"] for answer in answers):
            episode = (self._wanted.episode + 1) % MOST_EPISODES  # the evaluation's next
            self._wanted = dataclasses.replace(self._wanted, episode=episode)

    async def _ask_one(self, agent: AgentProcess, do: str, draw: bool) -> Packet | None:
        """One agent's answer; a process that died is replaced, and all begin again."""
        try:
            answer = await agent.ask(do, self._played, draw)
        except WorkerError as error:
            await agent.close()
            self._restarts += 1
            if self._restarts > RESTARTS:
                await self._lose(agent, str(error))
                return None
            await self._tell("restart", agent, str(error))
            await self._start(agent)
            self._begin = True
            return None
        if "error" in answer.header:
            await self._tell("problem", agent, answer.header["error"])
            self._playing = False
            await self.send({"do": "paused"})
            return None
        return answer

    async def _keep(self, film: Film, answers: list[Packet]) -> None:
        """Add a picture to the film; when it is long enough, write it, and play on meanwhile."""
        before = int(film.seconds)
        film.add(answers)
        if int(film.seconds) > before or film.is_whole:
            state = {"seconds": int(film.seconds), "writing": film.is_whole}
            await self.send({"do": "recording"} | state)
        if film.is_whole:
            self._film = None
            task = asyncio.create_task(self._write(film))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _write(self, film: Film) -> None:
        """Write a film next to the first run, or to runs/ without one, and tell the page."""
        with contextlib.suppress(asyncio.CancelledError):
            try:
                number, now = len(self._films), f"{datetime.now():%Y%m%d-%H%M%S}"
                folder = zoo.working_copy(self._run) if self._run else Path("runs")
                path = layout.media_file(folder, f"play-{now}-{number}", ".mp4")
                self._films.append(path)
                await asyncio.to_thread(film.write, path)
                await self.send({"do": "recorded", "film": number, "path": str(path)})
            except SveaError as error:
                await self.send({"do": "problem", "agent": 0, "why": str(error)})
