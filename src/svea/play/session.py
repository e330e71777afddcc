"""One page: its agents play in lockstep, and it is shown as many pictures as it can take.

The page confirms every picture it has shown. While two are on their way, decisions are played
without drawing: pictures are dropped, never queued. Numbers are not lost, they come with the next
picture.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Any

from svea.core.errors import SveaError, UserError, WorkerError
from svea.core.terminal import note
from svea.play import recording
from svea.play.seats import AgentProcess
from svea.play.setting import DEFAULT, MOST_EPISODES, read_setting
from svea.play.wire import Packet

ON_THEIR_WAY = 2
"""Pictures that a page may have received and not yet shown."""
FASTEST = 60.0
"""Decisions a second, at most."""
RESTARTS = 3
"""How often a page's dead agents are started again."""
MESSAGES_PER_SECOND, MESSAGES_AT_ONCE = 150.0, 300.0
"""A dragged slider sends 60 a second, and every picture is confirmed."""

SAID = {"lost": "it left the page", "restart": "started again", "problem": "paused"}
"""What the terminal is told of an agent that failed."""

Send = Callable[[dict[str, Any]], Awaitable[None]]
SendBytes = Callable[[bytes], Awaitable[None]]


@dataclass
class Allowance:
    """How many messages a page may send."""

    left: float = MESSAGES_AT_ONCE
    at: float = field(default_factory=time.monotonic)

    def take(self) -> None:
        """Count a message; refuse one too many."""
        now = time.monotonic()
        self.left = min(MESSAGES_AT_ONCE, self.left + (now - self.at) * MESSAGES_PER_SECOND) - 1
        self.at = now
        if self.left < 0:
            raise UserError(f"more than {MESSAGES_PER_SECOND:.0f} messages a second.")


class Session:
    """The agents of one page."""

    def __init__(
        self,
        seats: list[dict[str, Any]],
        clips: Collection[str],
        films: recording.Films,
        send: Send,
        send_bytes: SendBytes,
    ) -> None:
        """Take who plays and how to reach the page; nothing is started yet."""
        self.agents = [AgentProcess(k, seat, len(seats)) for k, seat in enumerate(seats)]
        self._names = [seat["run"] or "random policy" for seat in seats]
        self._clips, self._films = clips, films
        self._send, self._send_bytes = send, send_bytes
        self._wanted, self._played = DEFAULT, DEFAULT
        """The setting that the page asks for, and the one that agents play in."""
        self._playing, self._steps, self._begin = True, 0, True
        self._exact = False
        self._sent = self._shown = 0  # pictures
        self._changed = asyncio.Event()
        self._restarts = 0
        self._film: recording.Film | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    # What a page says --------------------------------------------------------------------------

    def hear(self, message: dict[str, Any]) -> None:
        """Take a message of the page; one that is not allowed raises."""
        do, rest = message["do"], {k: v for k, v in message.items() if k != "do"}
        allowed = {"set": {"setting"}, "shown": {"picture"}, "play": {"on"}}
        if extra := rest.keys() - allowed.get(do, set()):
            raise UserError(f"a message {do[:20]!r} has no {str(min(extra))[:20]!r}.")
        if do == "set":
            self._wanted = read_setting(rest.get("setting"), self._clips, self._wanted)
        elif do == "shown":
            picture = rest.get("picture")
            if type(picture) is not int or not 0 <= picture <= self._sent:
                raise UserError(f"picture is {str(picture)[:20]}; it must be one that was sent.")
            self._shown = max(self._shown, picture)
        elif do == "play":
            if not isinstance(rest.get("on"), bool):
                raise UserError("on must be true or false.")
            self._playing, self._steps = rest["on"], 0
        elif do == "step":
            self._playing, self._steps = False, min(self._steps + 1, 10)
        elif do == "reset":
            self._begin = True
        elif do == "record":
            self._film = self._film or recording.Film()
        else:
            raise UserError(f"a message asks to {do[:20]!r}, which is not offered.")
        self._changed.set()

    # Playing -----------------------------------------------------------------------------------

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
            await self._send({"do": "agent", "agent": agent.number, "about": agent.about})
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
        note(f"svea: {self._names[agent.number]}: {why} [{SAID[what]}]")
        await self._send({"do": what, "agent": agent.number, "why": why})

    async def _turn(self) -> bool:
        """Do what is due, once: begin, change the look, or decide; whether time has to pass."""
        before, self._played = self._played, self._wanted
        if self._begin or before.episode_key != self._played.episode_key:
            self._begin, self._exact = False, self._played.is_exact
            await self._ask("begin", True)
            return self._playing
        if before.look_key != self._played.look_key:
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
            await self._send(state)
            for answer in answers:
                await self._send_bytes(answer.raw)
        if self._film is not None and do == "decide":
            await self._keep(self._film, answers)
        if answers and do == "decide" and all(answer.header["done"] for answer in answers):
            self._next_episode()

    def _next_episode(self) -> None:
        """After the last agent's end the next episode of the evaluation begins."""
        episode = (self._wanted.episode + 1) % MOST_EPISODES
        self._wanted = replace(self._wanted, episode=episode)

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
            await self._send({"do": "paused"})
            return None
        return answer

    async def _keep(self, film: recording.Film, answers: list[Packet]) -> None:
        """Add a picture to the film; when it is long enough, write it, and play on meanwhile."""
        before = film.seconds
        film.add(answers)
        if film.seconds > before or film.is_whole:
            state = {"seconds": film.seconds, "writing": film.is_whole}
            await self._send({"do": "recording"} | state)
        if film.is_whole:
            self._film = None
            task = asyncio.create_task(self._write(film))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _write(self, film: recording.Film) -> None:
        """Write a film next to the first agent's run, and tell the page."""
        with contextlib.suppress(asyncio.CancelledError):
            try:
                number, path = await asyncio.to_thread(self._films.write, film)
                await self._send({"do": "recorded", "film": number, "path": str(path)})
            except SveaError as error:
                await self._send({"do": "problem", "agent": 0, "why": str(error)})
