"""The playground's door, with hostile clients; agents are played by a stand-in."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("starlette", reason="needs the extra play")
pytest.importorskip("uvicorn", reason="needs the extra play")
websockets = pytest.importorskip("websockets", reason="needs the extra play")

from processes import wait_for  # noqa: E402
from websockets.exceptions import ConnectionClosed, InvalidStatus  # noqa: E402
from websockets.sync.client import connect  # noqa: E402

from svea.core.errors import SveaError, WorkerError  # noqa: E402
from svea.play import server as servers  # noqa: E402
from svea.play import session as sessions  # noqa: E402
from svea.play.setting import LONGEST_MESSAGE, AgentSlot  # noqa: E402

ABOUT = {"task": "walker_walk", "rate": 1000.0, "has_q": False}


class StandIn:
    """In the place of an agent's process."""

    alive: set[StandIn] = set()  # noqa: RUF012
    asked: list[str] = []  # noqa: RUF012

    def __init__(self, number: int, slot: AgentSlot, slots: int) -> None:
        self.number, self.about = number, dict[str, Any]()
        self.dies = 0

    async def start(self, setting: Any) -> None:
        StandIn.alive.add(self)
        self.about = ABOUT

    async def ask(self, do: str, setting: Any, draw: bool = True) -> sessions.Packet:
        StandIn.asked.append(do)
        await asyncio.sleep(0.002)
        if self.dies:
            self.dies -= 1
            raise WorkerError("its process died")
        header = {"agent": self.number, "did": do, "done": False, "return": 0.0}
        header["noise"] = setting.variation.get("picture.noise")
        return sessions.unpack(sessions.pack(header, *([b"jpeg"] if draw else [])))

    async def close(self) -> None:
        StandIn.alive.discard(self)


@pytest.fixture
def door(monkeypatch: pytest.MonkeyPatch) -> Iterator[Door]:
    monkeypatch.setattr(sessions, "AgentProcess", StandIn)
    StandIn.alive.clear()
    StandIn.asked.clear()
    opened = Door()
    yield opened
    opened.close()
    assert not StandIn.alive, "every process has ended with the server"


class Door:
    """A server in a thread."""

    def __init__(self) -> None:
        slots = [AgentSlot("a"), AgentSlot("b")]
        self.playground = servers.Playground(slots, ["generated/0"])
        self.socket = servers.listen("127.0.0.1", 0)
        self.port = self.socket.getsockname()[1]
        self.host = f"127.0.0.1:{self.port}"
        self._server = servers.make_server(self.playground, "127.0.0.1")
        ready = threading.Event()
        run = servers.run(self._server, self.playground, self.socket, ready.set)
        self._thread = threading.Thread(target=asyncio.run, args=(run,), daemon=True)
        self._thread.start()
        assert ready.wait(20)

    def get(self, path: str, **headers: str) -> http.client.HTTPResponse:
        line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        line.putrequest("GET", path, skip_host=True)
        for name, value in ({"Host": self.host} | headers).items():
            line.putheader(name, value)
        line.endheaders()
        return line.getresponse()

    def connect(self, token: str = "", origin: str | None = "", **more: Any) -> Any:
        address = f"ws://{self.host}/{token or self.playground.token}/live"
        chosen: Any = f"http://{self.host}" if origin == "" else origin
        return connect(address, origin=chosen, max_size=None, open_timeout=20, **more)

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join(20)
        assert not self._thread.is_alive(), "the server ends"
        self.socket.close()


MALFORMED = [
    '{"do": "set", "setti', "\u0416\x01", "[" * 4000, '{"a":' * 700, '{"do": null}', '{"do": {}}',
    "[1]", "9" * LONGEST_MESSAGE, '{"do": NaN}', " " * (LONGEST_MESSAGE + 1),
]  # fmt: skip
"""What a page never sends."""


def start(line: Any, **setting: Any) -> None:
    """A page begins."""
    assert json.loads(line.recv(timeout=20))["do"] == "hello"
    line.send(json.dumps({"do": "start", "setting": setting}))


def until(line: Any, do: str) -> dict[str, Any]:
    """The next message of a kind."""
    while True:
        said = line.recv(timeout=20)
        if isinstance(said, str) and json.loads(said)["do"] == do:
            return json.loads(said)


def reason_of(line: Any) -> str:
    """Why the server closes a connection."""
    with pytest.raises(ConnectionClosed) as closed:
        while True:
            line.recv(timeout=20)
    assert closed.value.rcvd is not None
    return closed.value.rcvd.reason


def test_the_page_is_there_with_the_token_and_nothing_else_is(door: Door):
    token = door.playground.token
    assert len(token) >= 32
    page = door.get(f"/{token}/")
    assert page.status == 200 and b"svea" in page.read()
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]
    for name in servers.PAGE:
        assert door.get(f"/{token}/{name}").status == 200
    for path in ("/", "/wrong/", f"/{token}", f"/{token}x/", f"/x{token}/app.js", f"//{token}/"):
        assert door.get(path).status in (403, 404, 307), path
    for path in ("server.py", "../server.py", "%2e%2e/server.py", "..%2fserver.py", "page/app.js",
                 "films/0", "films/-1", "films/..%2f..%2fetc%2fpasswd", "%00",
                 "films/" + "1" * 5000):  # fmt: skip
        assert door.get(f"/{token}/{path}").status == 404, path


@pytest.mark.parametrize(
    ("host", "codes"),
    [
        *((host, (400, 403)) for host in ("evil.example", "evil.example:80", "", "10.1.2.3",
                                          "127.0.0.1.evil.example", "[::2]:1")),
        *((host, (200,)) for host in ("localhost", "LOCALHOST:9000", "[::1]:80")),  # of a tunnel
    ],
)  # fmt: skip
def test_only_this_machines_names_are_served(door: Door, host: str, codes: tuple[int, ...]):
    assert door.get(f"/{door.playground.token}/", Host=host).status in codes


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://127.0.0.1",
                                    "http://127.0.0.1:1", None])  # fmt: skip
def test_another_origin_or_token_is_refused(door: Door, origin: str | None):
    with pytest.raises(InvalidStatus):
        door.connect(origin=origin)
    for token in ("x", door.playground.token[:-1], door.playground.token + "x", "%00", "ü"):
        with pytest.raises((InvalidStatus, UnicodeError)):
            door.connect(token)
    assert not StandIn.alive
    if origin is not None:
        assert door.get(f"/{door.playground.token}/", Origin=origin).status == 403


def test_agents_start_when_the_page_asks_and_end_with_it(door: Door):
    with door.connect() as line:
        hello = json.loads(line.recv(timeout=20))
        assert hello["agents"] == ["a", "b"] and len(hello["colors"]) == 100
        assert not StandIn.alive, "a connection alone starts nothing"
        line.send(json.dumps({"do": "start", "setting": {"noise": 0.25}}))
        until(line, "picture")
        assert len(StandIn.alive) == 2
        packet = sessions.unpack(line.recv(timeout=20))
        assert packet.header["noise"] == 0.25 and packet.parts == [b"jpeg"]
    wait_for(lambda: not StandIn.alive)


def test_pictures_are_dropped_and_never_queued(door: Door):
    with door.connect() as line:
        start(line, speed=8)
        shown = 0
        with contextlib.suppress(TimeoutError):  # nothing is confirmed: no more than two come
            while True:
                shown += isinstance(line.recv(timeout=1.0), bytes)
        assert shown == 2 * sessions.ON_THEIR_WAY, "of two agents each"
        before = StandIn.asked.count("decide")
        wait_for(lambda: StandIn.asked.count("decide") > before + 10)  # the agents play on
        line.send(json.dumps({"do": "shown", "picture": sessions.ON_THEIR_WAY}))
        while until(line, "picture")["picture"] < 2 * sessions.ON_THEIR_WAY:
            pass
        line.send(json.dumps({"do": "play", "on": False}))
        line.send(json.dumps({"do": "step"}))  # shown also to a page that confirms nothing
        assert until(line, "picture")["picture"] == 2 * sessions.ON_THEIR_WAY + 1


def test_malformed_messages_close_their_connections(door: Door):
    for message in MALFORMED:
        with door.connect() as line:
            line.recv(timeout=20)
            line.send(message)
            assert reason_of(line), message[:20]
    assert not StandIn.alive and not StandIn.asked, "nothing else happened"
    with door.connect() as line:  # and the next page is served
        start(line)
        until(line, "picture")


NOT_OFFERED: list[dict[str, Any]] = [
    {"do": "set", "setting": {"noise": 7}}, {"do": "set", "setting": {"run": "/"}},
    {"do": "set"}, {"do": "shown", "picture": 10**9}, {"do": "shown", "picture": "1"},
    {"do": "play", "on": 1}, {"do": "exec", "code": "1"}, {"do": "record", "path": "/x"},
    {"do": "reset", "run": "/"}, {"do": "start", "setting": {}},
]  # fmt: skip


def test_a_page_that_says_what_it_may_not_is_closed_with_a_reason(door: Door):
    for message in NOT_OFFERED:
        with door.connect() as line:
            start(line)
            until(line, "picture")
            line.send(json.dumps(message))
            assert len(reason_of(line)) > 10, message
        wait_for(lambda: not StandIn.alive)


def test_binary_and_oversized_frames_are_refused(door: Door):
    with door.connect() as line:
        start(line)
        line.send(b"\0" * 100)
        assert "binary" in reason_of(line)
    for huge in ("x" * 10_000_000, ("x" * 1000 for _ in range(1000))):  # also in many frames
        with door.connect() as line:
            start(line)
            with contextlib.suppress(ConnectionClosed):
                line.send(huge)
            with pytest.raises(ConnectionClosed) as closed:
                while True:
                    line.recv(timeout=20)
            assert closed.value.rcvd is None or closed.value.rcvd.code in (1009, 1011)
    wait_for(lambda: not StandIn.alive)


def test_a_page_that_does_not_read_holds_no_other_up(door: Door):
    with door.connect() as calm, door.connect() as flood:
        start(calm)
        until(calm, "picture")
        start(flood)
        for _ in range(1000):  # it confirms what it never reads
            flood.send('{"do": "shown", "picture": 0}')
        for _ in range(5):
            calm.send(json.dumps({"do": "shown", "picture": until(calm, "picture")["picture"]}))


def test_fifty_connections_start_two_pages_and_the_rest_are_told(door, monkeypatch):
    monkeypatch.setattr(servers, "HELLO_SECONDS", 60.0)  # a busy machine opens them slowly
    with contextlib.ExitStack() as stack:
        lines = [stack.enter_context(door.connect()) for _ in range(50)]
        for line in lines:
            start(line)
        for line in lines[:2]:
            until(line, "picture")
        for line in lines[2:]:
            assert "pages are open" in reason_of(line)
        assert len(StandIn.alive) == 4
    wait_for(lambda: not StandIn.alive)


def test_silent_connections_do_not_keep_a_page_out(door: Door, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(servers, "HELLO_SECONDS", 0.2)
    with door.connect() as silent:
        silent.recv(timeout=20)
        assert "did not start" in reason_of(silent)


def test_connections_without_a_request_are_closed(door: Door, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(servers, "REQUEST_SECONDS", 0.5)
    held = [socket.create_connection(("127.0.0.1", door.port)) for _ in range(30)]
    for each in held[::2]:
        each.sendall(b"GET / HTTP/1.1\r\nHost: ")  # and nothing more
    with door.connect() as line:
        start(line)
        for each in held:
            each.settimeout(20)
            assert each.recv(100) == b"", "closed"
            each.close()
        until(line, "picture")
        time.sleep(0.6)
        line.send('{"do": "reset"}')  # a page that has begun stays
        wait_for(lambda: StandIn.asked.count("begin") >= 2)


@pytest.mark.parametrize("asked", ["GET /x/", "OPTIONS *", "GET foo", "CONNECT a.example:1"])
def test_a_refusal_closes_the_connection(door: Door, asked: str):
    with socket.create_connection(("127.0.0.1", door.port), timeout=20) as line:
        line.sendall(f"{asked} HTTP/1.1\r\nHost: {door.host}\r\n\r\nGET".encode())
        answer = b"".join(iter(lambda: line.recv(4096), b""))
    assert answer.startswith(b"HTTP/1.1 403") and b"\r\nconnection: close" in answer.lower()


def test_a_dead_agent_is_started_again_and_then_left_out(door, capsys):
    with door.connect() as line:
        start(line)
        shown = until(line, "picture")["picture"]
        broken = next(agent for agent in StandIn.alive if agent.number == 1)
        broken.dies = 1
        line.send(json.dumps({"do": "shown", "picture": shown}))
        assert until(line, "restart")["agent"] == 1
        begun = until(line, "picture")
        while begun["agents"] != [0, 1]:  # one that is being started again is not among them
            assert begun["agents"] == [0]
            line.send(json.dumps({"do": "shown", "picture": begun["picture"]}))
            begun = until(line, "picture")
        line.send(json.dumps({"do": "shown", "picture": begun["picture"]}))
        broken.dies = 10**6
        assert until(line, "lost")["agent"] == 1
        assert {agent.number for agent in StandIn.alive} == {0}, "the other plays on"
    said = capsys.readouterr().err
    assert "svea: b: its process died [started again]" in said
    assert "svea: b: its process died [it left the page]" in said


def test_the_terminal_says_why_no_agent_is_left(door, monkeypatch, capsys):
    async def fail(self: StandIn, setting: Any) -> None:
        raise SveaError("the disk is gone")

    monkeypatch.setattr(StandIn, "start", fail)
    with door.connect() as line:
        start(line)
        assert until(line, "lost")["why"] == "the disk is gone"
        assert until(line, "lost")["why"] == "the disk is gone"
        with pytest.raises(ConnectionClosed, match="the terminal says why"):
            line.recv(timeout=20)
    said = capsys.readouterr().err
    assert all(f"svea: {name}: the disk is gone [it left the page]" in said for name in "ab")


def test_a_page_is_told_how_long_its_film_is(door: Door, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sessions, "FILM_SECONDS", 1.0)
    monkeypatch.setattr(sessions.Film, "write", lambda self, path: None)
    with door.connect() as line:
        start(line)
        line.send('{"do": "record"}')
        assert until(line, "recording") == {"do": "recording", "seconds": 1, "writing": True}
        assert until(line, "recorded")["film"] == 0


def test_a_film_has_ten_seconds_and_a_pause_is_cut(monkeypatch: pytest.MonkeyPatch):
    now = [100.0]
    monkeypatch.setattr(sessions.time, "monotonic", lambda: now[0])
    film = sessions.Film()
    answer = sessions.unpack(sessions.pack({"agent": 0}, b"jpeg"))
    film.add([sessions.unpack(sessions.pack({"agent": 0}))])  # no picture
    while not film.is_whole:
        film.add([answer])
        now[0] += 60.0 if now[0] == 105.0 else 0.1
    assert film.rate == pytest.approx(10, rel=0.12)
    assert len(film.shown) == pytest.approx(100, abs=12)
