"""A web server on this machine that misbehaves as told, and files to serve from it."""

import io
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Reply = tuple[int, bytes, int | None]
"""A status, a file, and after how many of its bytes the connection is closed."""


@dataclass
class Server:
    """Answers each request with the next reply; the last one stays."""

    replies: list[Reply]
    url: str = ""
    requests: list[dict[str, str]] = field(default_factory=list)


@contextmanager
def serve(*replies: Reply) -> Iterator[Server]:
    """Run a server for the length of a test."""
    server = Server(list(replies))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            server.requests.append(dict(self.headers))
            kept = server.replies
            status, content, cut = kept.pop(0) if len(kept) > 1 else kept[0]
            if status != 200:
                return self.send_error(status)
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[:cut])

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


def send(content: bytes, cut: int | None = None) -> Reply:
    return 200, content, cut


def status(code: int) -> Reply:
    return code, b"", None


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
