"""A web server on this machine that misbehaves as told, and files to serve from it."""

from __future__ import annotations

import io
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

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


def send(content: bytes, *, cut: int | None = None, length: int | None = None) -> Reply:
    """Send a file.

    Args:
        content: The file.
        cut: Close the connection after this many bytes.
        length: Claim this Content-Length; 0 claims none.
    """

    def reply(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        if length != 0:
            handler.send_header("Content-Length", str(length or len(content)))
        handler.end_headers()
        handler.wfile.write(content[:cut])

    return reply


def status(code: int) -> Reply:
    """Answer with an error."""

    def reply(handler: BaseHTTPRequestHandler) -> None:
        handler.send_error(code)

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
