"""The playground's door and server: the page, its WebSocket, and who may use them.

What it keeps off: other sites that a browser visits (Origin), names that resolve to this machine
(Host), other users of this machine (a random token in the address), pages beyond a number, messages
that are large or not what the page sends. No path of the file system comes from a page.
"""

import asyncio
import contextlib
import dataclasses
import ipaddress
import secrets
import socket
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import uvicorn
import websockets  # noqa: F401  (what uvicorn serves them with)
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope
from starlette.types import Send as ASGISend
from starlette.websockets import WebSocket, WebSocketDisconnect
from uvicorn.protocols.http.h11_impl import H11Protocol

from svea.core.errors import SveaError, UserError, between
from svea.core.terminal import Steps, warn
from svea.data.clips import data_folder
from svea.envs import check_task
from svea.envs.looks.colors import load_settings
from svea.envs.looks.live import find_clips, to_text
from svea.play.session import Session
from svea.play.setting import (
    DEFAULT,
    LONGEST_MESSAGE,
    OVERLAYS,
    AgentSlot,
    grouped_modes,
    read_message,
    sliders,
)
from svea.runs.load import load_config

HELLO_SECONDS = 10.0
"""A page that has not asked to start by then is closed."""
REQUEST_SECONDS = 10.0
"""A connection that has sent no whole request by then is closed."""
MOST_CONNECTIONS = 256
MOST_AGENTS = 4
PAGE = {
    "": "text/html", "style.css": "text/css",
    **dict.fromkeys(("app.js", "plots.js", "controls.js"), "text/javascript"),
}  # fmt: skip
"""What is served, by the last part of the address."""

POLICY, BUSY, FAILED = 1008, 1013, 1011  # of RFC 6455: why a WebSocket is closed

HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
        "connect-src 'self'; media-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class FirstRequestTimeout(H11Protocol):
    """uvicorn's protocol, which by itself waits forever for the first request."""

    def connection_made(self, transport: Any) -> None:
        """Begin to wait."""
        super().connection_made(transport)
        self.loop.call_later(REQUEST_SECONDS, self._give_up, transport)

    def _give_up(self, transport: asyncio.Transport) -> None:
        """Close, unless a request has come."""
        if getattr(self, "scope", None) is None:
            transport.close()


class Guard:
    """Lets requests through that come from our own page, with the token; all others end here."""

    def __init__(self, app: ASGIApp, token: str, hosts: frozenset[str], any_address: bool) -> None:
        """Take what is guarded, the first part of every path, and this server's names."""
        self._app, self._token = app, token
        self._hosts, self._any_address = hosts, any_address

    async def __call__(self, scope: Scope, receive: Receive, send: ASGISend) -> None:
        """Check one connection."""
        if scope["type"] == "lifespan" or (refused := self._refusal(scope)) is None:
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            # Closed, or a stranger could hold the line with half of a second request.
            closing = HEADERS | {"Connection": "close"}
            await PlainTextResponse(refused, 403, closing)(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": POLICY, "reason": refused})

    def _refusal(self, scope: Scope) -> str | None:
        """Why a connection is not allowed; None if it is."""
        headers = [(name, value.decode("latin-1")) for name, value in scope["headers"]]
        hosts = [value for name, value in headers if name == b"host"]
        origins = [value for name, value in headers if name == b"origin"]
        if len(hosts) != 1 or not self._is_ours(hosts[0]):
            return "wrong host: open the address that svea play printed"
        must = scope["type"] == "websocket"
        if (must or origins) and origins != [f"http://{hosts[0]}"]:
            return "wrong origin: another site asked"
        given = f"{scope['path']}/".split("/")[1].encode()  # also of `OPTIONS *`
        if not secrets.compare_digest(given, self._token.encode()):
            return "wrong token: open the address that svea play printed, and add what follows #"
        return None

    def _is_ours(self, host: str) -> bool:
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
        if name.lower() in self._hosts:
            return True
        try:
            ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return False
        return self._any_address  # another site may make a name point here, but not a number


@dataclasses.dataclass
class Playground:
    """The application: who plays, and the pages that watch."""

    slots: Sequence[AgentSlot]
    clips: Sequence[str]
    """Names of the videos that can be shown behind an agent."""
    most_pages: int = 2
    tasks: Sequence[str] = ()
    """In which the agents play."""
    token: str = dataclasses.field(default_factory=lambda: secrets.token_urlsafe(24))

    sessions: set[Session] = dataclasses.field(default_factory=set)
    films: list[Path] = dataclasses.field(default_factory=list)
    """Those that were recorded; a page asks for one by its number."""

    def app(self, hosts: frozenset[str], any_address: bool = False) -> ASGIApp:
        """The guarded application."""
        routes = [
            Route("/{token}/films/{number}", self.film),
            Route("/{token}/{name:path}", self.page),
            WebSocketRoute("/{token}/live", self.live),
        ]
        return Guard(Starlette(routes=routes), self.token, hosts, any_address)

    async def page(self, request: Request) -> Response:
        """A file of the page: one of a fixed few."""
        name = request.path_params["name"]
        if name not in PAGE:
            return PlainTextResponse("not found", 404, HEADERS)
        content = resources.files("svea.play").joinpath("page", name or "index.html").read_bytes()
        return Response(content, headers=HEADERS, media_type=f"{PAGE[name]}; charset=utf-8")

    async def film(self, request: Request) -> Response:
        """A film that this server has written, by its number."""
        by_name = {str(number): path for number, path in enumerate(self.films)}
        path = by_name.get(request.path_params["number"])
        if path is None:
            return PlainTextResponse("not found", 404, HEADERS)
        return FileResponse(path, headers=HEADERS, media_type="video/mp4", filename=path.name)

    async def live(self, socket: WebSocket) -> None:
        """A page: says hello, starts its agents when it asks, and ends them when it goes."""
        await socket.accept()
        session = None
        try:
            await socket.send_json(self.hello())
            async with asyncio.timeout(HELLO_SECONDS):
                first = await self._hear(socket)
            if first["do"] != "start":
                raise UserError('the first message must be "start".')
            if len(self.sessions) >= self.most_pages:
                await socket.close(BUSY, f"{self.most_pages} pages are open already")
                return
            session = Session(self.slots, self.clips, self.films, socket)
            self.sessions.add(session)  # nothing waits between their count and this
            session.hear({"do": "set", "setting": first.get("setting", {})})
            await self._serve(socket, session)
        except UserError as error:
            await _close(socket, POLICY, str(error))
        except TimeoutError:
            await _close(socket, POLICY, "the page did not start")
        except SveaError as error:
            await _close(socket, FAILED, str(error))
        except (WebSocketDisconnect, RuntimeError, OSError):
            pass  # the page is gone
        finally:
            if session is not None:
                self.sessions.discard(session)
                await asyncio.shield(session.close())

    def hello(self) -> dict[str, Any]:
        """What a page needs before anything is started."""
        colors = load_settings("color_hard")
        kinds = ("self_rgb", "grid_rgb1", "skybox_rgb")
        return {
            "do": "hello",
            "agents": [slot.name for slot in self.slots],
            "groups": grouped_modes(self.tasks),
            "clips": self.clips,
            "overlays": OVERLAYS,
            "factors": sliders(),
            "colors": [[to_text(setting[kind]) for kind in kinds] for setting in colors],
        }

    async def _serve(self, socket: WebSocket, session: Session) -> None:
        """Play and listen until one of both ends."""

        async def listen() -> None:
            while True:
                session.hear(await self._hear(socket))

        tasks = [asyncio.create_task(work) for work in (session.run(), listen())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    @staticmethod
    async def _hear(socket: WebSocket) -> dict[str, Any]:
        """The page's next message."""
        try:
            return read_message(await socket.receive_text())
        except KeyError:
            raise UserError("a message is binary; it must be text.") from None


async def _close(socket: WebSocket, code: int, reason: str) -> None:
    """Close with a reason, which may have 123 bytes."""
    shown = reason.encode()[:120].decode(errors="ignore")
    with contextlib.suppress(RuntimeError, OSError, WebSocketDisconnect):
        await socket.close(code, shown)


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 takes a free one."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        made = socket.socket(family)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
        return made
    except OSError as error:
        raise UserError(
            f"cannot listen on {host}, port {port}: {error.strerror or error}; allowed: an address "
            "of this machine and a free port (0 takes one)"
        ) from error


def make_server(playground: Playground, host: str) -> uvicorn.Server:
    """The server of an address, with its limits."""
    wildcard = host in ("0.0.0.0", "::")
    names = {"localhost", "127.0.0.1", "[::1]", host.lower()}
    names |= {socket.gethostname().lower()} if wildcard else set()
    config = uvicorn.Config(
        playground.app(frozenset(names), wildcard),
        log_config=None,  # the process has its own logging, whose streams must stay open
        log_level="error",
        access_log=False,
        server_header=False,
        lifespan="off",
        http=FirstRequestTimeout,
        ws="websockets-sansio",
        ws_max_size=LONGEST_MESSAGE,
        ws_per_message_deflate=False,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_graceful_shutdown=5,
    )
    return uvicorn.Server(config)


async def run(
    server: uvicorn.Server,
    playground: Playground,
    made: socket.socket,
    on_ready: Callable[[], None],
) -> None:
    """Serve until interrupted; every process of every page has ended when this returns."""
    serving = asyncio.create_task(server.serve([made]))
    try:
        while not server.started and not serving.done():
            await asyncio.sleep(0.02)
        if server.started:
            on_ready()
        await serving
    finally:
        await asyncio.gather(*(session.close() for session in playground.sessions))


def serve(
    agents: Sequence[str],
    *,
    random: bool = False,
    task: str = "",
    setting: str = "",
    host: str = "127.0.0.1",
    port: int = 0,
    pages: int = 2,
    envs: int = 0,
    device: str = "cpu",
    data_dir: str = "",
    on_ready: Callable[[str], None],
) -> None:
    """Serve a page on which agents play, until Ctrl-C: the options of `svea play`.

    What cannot be read, made or offered is refused before anything is served; then `on_ready` is
    called with the page's address.
    """
    between(1, 16).check("pages", pages)
    between(0, 65535).check("port", port)
    between(0, 64).check("envs", envs)
    end = fragment(setting)
    slots, tasks = choose_agents(agents, random, task, data_dir or None, device, envs)
    check_agents(slots)
    clips = list(find_clips(data_folder(data_dir or None)))
    playground = Playground(slots, clips, pages, tasks)
    with listen(host, port) as made:
        shown = "127.0.0.1" if host in ("0.0.0.0", "::") else host
        shown = f"[{shown}]" if ":" in shown else shown
        address = f"http://{shown}:{made.getsockname()[1]}/{playground.token}/{end}"
        if host not in ("127.0.0.1", "localhost", "::1"):
            warn(f"listening on {host}: anyone who can reach this machine and knows the address "
                 "can use the page; it is not encrypted")  # fmt: skip
        server = make_server(playground, host)
        with contextlib.suppress(KeyboardInterrupt):  # the way to end it
            asyncio.run(run(server, playground, made, lambda: on_ready(address)))


def choose_agents(
    runs: Sequence[str], random: bool, task: str, data_dir: str | None, device: str, rows: int
) -> tuple[list[AgentSlot], list[str]]:
    """Who plays, and in which tasks; what cannot be read is refused before anything starts."""
    if not 1 <= len(runs) + random <= MOST_AGENTS:
        raise UserError(f"{len(runs) + random} agents; allowed: 1 to {MOST_AGENTS}")
    if task:
        check_task(task)
    tasks = [task] if task else [load_config(run).task for run in runs]
    if not tasks:
        raise UserError("the random policy needs a task: give --task walker_walk, or a run")
    chosen = [(run, task) for run in runs] + ([("", tasks[0])] if random else [])
    return [AgentSlot(run, other, data_dir, device, rows) for run, other in chosen], tasks


def check_agents(slots: Sequence[AgentSlot]) -> None:
    """Load each agent and make its environment once, on the CPU, as a page would later."""
    with Steps("agents", len(slots)) as steps:
        from svea.evaluation.play import naming_users_code
        from svea.play.player import Player  # needs torch, which takes seconds
        from svea.speed import choose_device

        for slot in slots:
            name = slot.run or "the random policy"
            steps.doing(f"loading {name}")
            choose_device(slot.device)
            try:
                with naming_users_code(slot.task or slot.run):
                    Player(dataclasses.replace(slot, device="cpu"), DEFAULT).close()
            except UserError as error:
                raise error if name in str(error) else UserError(f"{name}: {error}") from error


def fragment(setting: str) -> str:
    """What restores a setting, from a whole link or from its end.

    >>> fragment("http://127.0.0.1:8000/token/#mode=video_hard"), fragment("mode=train")
    ('#mode=video_hard', '#mode=train')
    """
    end = unquote(setting.rpartition("#")[2])
    if not setting:
        return ""
    if len(end) > 2000 or not end.isprintable() or " " in end or "=" not in end:
        allowed = "a link that the page made, or what follows its #, such as mode=video_hard"
        raise UserError(f"setting is {setting[:60]!r}; allowed: {allowed}")
    return f"#{end}"
