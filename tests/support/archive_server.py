"""A web server on this machine that misbehaves as told, and files to serve from it."""

from __future__ import annotations

import io
import pickle
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np

Reply = Callable[[BaseHTTPRequestHandler], None]


@dataclass
class Server:
    """Answers each request with the next reply; the last one stays."""

    replies: list[Reply]
    url: str = ""
    requests: list[dict[str, str]] = field(default_factory=list)

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        self.requests.append(dict(handler.headers))
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        reply(handler)


@contextmanager
def serve(*replies: Reply) -> Iterator[Server]:
    """Run a server for the length of a test."""
    server = Server(list(replies))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            server.answer(self)

        def log_message(self, *_: object) -> None: ...

    web = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.url = f"http://127.0.0.1:{web.server_port}/archive"
    thread = threading.Thread(target=web.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        web.shutdown()
        web.server_close()
        thread.join()


def send(
    content: bytes,
    *,
    version: str | None = '"v1"',
    ranges: bool = True,
    cut: int | None = None,
    length: int | None = None,
    first: int | None = None,
) -> Reply:
    """Send a file.

    Args:
        content: The file.
        version: Its ETag (in quotes) or date of change; None to send none.
        ranges: Whether to honour Range (and If-Range).
        cut: Close the connection after so many bytes of the body.
        length: Claim this Content-Length; 0 to claim none.
        first: Claim that a partial answer begins here.
    """

    def reply(handler: BaseHTTPRequestHandler) -> None:
        start = 0
        if ranges and "Range" in handler.headers and handler.headers["If-Range"] == version:
            start = int(handler.headers["Range"].removeprefix("bytes=").removesuffix("-"))
            handler.send_response(206)
            claimed = start if first is None else first
            span = f"bytes {claimed}-{len(content) - 1}/{len(content)}"
            handler.send_header("Content-Range", span)
        else:
            handler.send_response(200)
        body = content[start:]
        if version is not None:
            handler.send_header("ETag" if '"' in version else "Last-Modified", version)
        if length != 0:
            handler.send_header("Content-Length", str(length or len(body)))
        handler.end_headers()
        handler.wfile.write(body[:cut])

    return reply


def send_chunks(content: bytes, *, cut: int | None = None) -> Reply:
    """Send a file of unannounced length, as code hosts send archives that they make on demand."""

    def reply(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        for start in range(0, len(content[:cut]), 100_000):
            block = content[start : start + 100_000]
            handler.wfile.write(b"%x\r\n%b\r\n" % (len(block), block))
        if cut is None:
            handler.wfile.write(b"0\r\n\r\n")

    return reply


def stall(content: bytes, until: threading.Event) -> Reply:
    """Send the first half of a file and fall silent."""

    def reply(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("ETag", '"v1"')
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content[: len(content) // 2])
        until.wait(60)

    return reply


def status(code: int) -> Reply:
    """Answer with an error."""

    def reply(handler: BaseHTTPRequestHandler) -> None:
        handler.send_error(code)

    return reply


def redirect(url: str) -> Reply:
    """Send the client elsewhere."""

    def reply(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(302)
        handler.send_header("Location", url)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    return reply


def make_zip(*members: tuple[str | zipfile.ZipInfo, bytes]) -> bytes:
    """Pack a zip."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members:
            file.writestr(name, content, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def make_tar(*members: tuple[str | tarfile.TarInfo, bytes]) -> bytes:
    """Pack a tar without compression."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:") as file:
        for entry, content in members:
            info = tarfile.TarInfo(entry) if isinstance(entry, str) else entry
            if info.isreg():
                info.size = len(content)
            file.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def save_legacy(path: Path, table: object) -> Path:
    """Write what the benchmark publishes: torch's old format, without any tensor in it."""
    with path.open("wb") as file:
        pickle.dump(0x1950A86A20F9469CFC6C, file, protocol=2)
        pickle.dump(1001, file, protocol=2)
        sizes = {"short": 2, "int": 4, "long": 4}
        system = {"protocol_version": 1001, "little_endian": True, "type_sizes": sizes}
        pickle.dump(system, file, protocol=2)
        pickle.dump(table, file, protocol=2)
        pickle.dump([], file, protocol=2)
    return path


def legacy_arrays(
    settings: list[dict[str, list[float]]], dtype: str = "<f8"
) -> list[dict[str, object]]:
    """The settings as the benchmark holds them."""
    return [{key: np.array(value, dtype) for key, value in s.items()} for s in settings]
