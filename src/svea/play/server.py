"""The playground's server: the page, its WebSocket, and who may use them. No torch.

What it keeps off: other sites that a browser visits (Origin), names that resolve to this machine
(Host), other users of this machine (a random token in the address), pages beyond a number, messages
that are large, many, or not what the page sends. No path of the file system comes from a page.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import ipaddress
import json
import secrets
import socket
from collections.abc import Callable
from importlib import resources
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope
from starlette.types import Send as ASGISend
from starlette.websockets import WebSocket, WebSocketDisconnect
from uvicorn.protocols.http.h11_impl import H11Protocol

from svea.core.errors import SveaError, UserError
from svea.envs.looks.colors import load_settings
from svea.envs.looks.live import to_text
from svea.play.recording import Films
from svea.play.session import Allowance, Session
from svea.play.setting import (
    LONGEST_MESSAGE,
    OVERLAYS,
    grouped_modes,
    read_message,
    read_setting,
)

HELLO_SECONDS = 10.0
"""A page that has not asked to start by then is closed."""
REQUEST_SECONDS = 10.0
"""A connection that has sent no whole request by then is closed."""
MOST_CONNECTIONS = 256
LONGEST_WAIT = 5.0
PAGE = {
    "": ("index.html", "text/html"),
    "app.js": ("app.js", "text/javascript"),
    "plots.js": ("plots.js", "text/javascript"),
    "controls.js": ("controls.js", "text/javascript"),
    "style.css": ("style.css", "text/css"),
}
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


class Impatient(H11Protocol):
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
        """Take what is allowed.

        Args:
            app: What is guarded.
            token: The first part of every path.
            hosts: Names under which this server is known.
            any_address: Whether any number of an address is one of them: a name may be made to
                point here by another site, a number may not.
        """
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
        return self._any_address


@dataclasses.dataclass
class Playground:
    """The application: who plays, and the pages that watch."""

    seats: list[dict[str, Any]]
    """Fields of `player.Seat`, one for each agent."""
    clips: list[str]
    """Names of the videos that can be shown behind an agent."""
    most_pages: int = 2
    token: str = dataclasses.field(default_factory=lambda: secrets.token_urlsafe(24))
    names: list[str] = dataclasses.field(default_factory=list)
    """What the page calls each agent."""
    tasks: list[str] = dataclasses.field(default_factory=list)
    """What each agent plays in."""

    def __post_init__(self) -> None:
        """No page yet."""
        self.sessions: set[Session] = set()
        self.films = Films(next((seat["run"] for seat in self.seats if seat["run"]), ""))

    def app(self, hosts: frozenset[str], any_address: bool = False) -> ASGIApp:
        """The guarded application."""
        routes = [
            Route("/{token}/films/{number}", self.film),
            Route("/{token}/{name}", self.page),
            Route("/{token}/", self.page),
            WebSocketRoute("/{token}/live", self.live),
        ]
        return Guard(Starlette(routes=routes), self.token, hosts, any_address)

    async def page(self, request: Request) -> Response:
        """A file of the page: one of a fixed few."""
        found = PAGE.get(request.path_params.get("name", ""))
        if found is None:
            return PlainTextResponse("not found", 404, HEADERS)
        name, kind = found
        content = resources.files("svea.play").joinpath("page", name).read_bytes()
        return Response(content, headers=HEADERS, media_type=f"{kind}; charset=utf-8")

    async def film(self, request: Request) -> Response:
        """A film that this server has written, by its number."""
        by_name = {str(number): self.films[number] for number in range(len(self.films))}
        path = by_name.get(request.path_params["number"])
        if path is None:
            return PlainTextResponse("not found", 404, HEADERS)
        return FileResponse(path, headers=HEADERS, media_type="video/mp4", filename=path.name)

    async def live(self, socket: WebSocket) -> None:
        """A page: says hello, starts its agents when it asks, and ends them when it goes."""
        await socket.accept()
        session = None
        try:
            await self._send(socket, self.hello())
            async with asyncio.timeout(HELLO_SECONDS):
                first = await self._hear(socket)
            if first["do"] != "start":
                raise UserError('the first message must be "start".')
            setting = read_setting(first.get("setting", {}), self.clips)
            if len(self.sessions) >= self.most_pages:
                await socket.close(BUSY, f"{self.most_pages} pages are open already")
                return
            session = self._session(socket)
            session.hear({"do": "set", "setting": dataclasses.asdict(setting)})
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
            "agents": self.names,
            "groups": grouped_modes(self.tasks),
            "clips": self.clips,
            "overlays": OVERLAYS,
            "colors": [[to_text(setting[kind]) for kind in kinds] for setting in colors],
        }

    def _session(self, socket: WebSocket) -> Session:
        """Agents for a page; nothing waits between the count of pages and this."""
        sending = asyncio.Lock()

        async def send(message: dict[str, Any]) -> None:
            async with sending:
                await self._send(socket, message)

        async def send_bytes(packet: bytes) -> None:
            async with sending:
                await socket.send_bytes(packet)

        session = Session(self.seats, self.clips, self.films, send, send_bytes)
        self.sessions.add(session)
        return session

    async def _serve(self, socket: WebSocket, session: Session) -> None:
        """Play and listen until one of both ends."""

        async def listen() -> None:
            allowance = Allowance()
            while True:
                message = await self._hear(socket)
                allowance.take()
                session.hear(message)

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
        event = await socket.receive()
        if event["type"] != "websocket.receive":
            raise WebSocketDisconnect(event.get("code", 1005))
        text = event.get("text")
        if text is None:
            raise UserError("a message is binary; it must be text.")
        return read_message(text)

    @staticmethod
    async def _send(socket: WebSocket, message: dict[str, Any]) -> None:
        await socket.send_text(json.dumps(message))


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
            f"cannot listen on {host}, port {port}: {error.strerror or error}. Allowed: an address "
            "of this machine and a free port (--port 0 takes one)"
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
        http=Impatient,
        ws="websockets-sansio",
        ws_max_size=LONGEST_MESSAGE,
        ws_per_message_deflate=False,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_graceful_shutdown=int(LONGEST_WAIT),
    )
    return uvicorn.Server(config)


async def serve(
    server: uvicorn.Server,
    playground: Playground,
    made: socket.socket,
    on_ready: Callable[[], None] = lambda: None,
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
