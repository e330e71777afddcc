"""A real browser, headless, driven over its debugging protocol; and what its console said."""

import contextlib
import itertools
import json
import shutil
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
SWITCHES = (
    *("headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-sync"),
    *("disable-background-networking", "disable-component-update", "remote-debugging-port=0"),
    "window-size=1400,1000",
)


def find() -> str:
    """The browser's command (Debian: `apt-get install chromium`); without one a test is skipped."""
    for command in filter(None, map(shutil.which, NAMES)):
        return command
    pytest.skip(f"none of {', '.join(NAMES)} is installed")


class Browser:
    """One tab."""

    def __init__(self, profile: Path) -> None:
        flags = [f"--{switch}" for switch in SWITCHES] + [f"--user-data-dir={profile}"]
        self._process = subprocess.Popen(
            [find(), *flags, "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            process_group=0,
        )
        self._numbers = itertools.count(1)
        self.console: list[str] = []
        """Errors and exceptions of the page."""
        from websockets.sync.client import connect

        port = self._port(profile)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list", timeout=30) as answer:
            tab = next(each for each in json.load(answer) if each["type"] == "page")
        self._stack = contextlib.ExitStack()
        self._line = self._stack.enter_context(connect(tab["webSocketDebuggerUrl"], max_size=None))
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    @staticmethod
    def _port(profile: Path) -> int:
        """Where the browser listens, which it writes into its profile."""
        file, end = profile / "DevToolsActivePort", time.monotonic() + 90
        while time.monotonic() < end:
            with contextlib.suppress(OSError, ValueError, IndexError):
                return int(file.read_text().split()[0])
            time.sleep(0.1)
        raise TimeoutError("the browser did not start")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Ask the browser; what the console says meanwhile is kept."""
        number = next(self._numbers)
        self._line.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._line.recv(timeout=120))
            if message.get("id") == number:
                assert "error" not in message, message["error"]
                return message["result"]
            self._note(message)

    def _note(self, event: dict[str, Any]) -> None:
        """Keep what is an error."""
        parameters = event.get("params", {})
        if event.get("method") == "Runtime.exceptionThrown":
            self.console.append(json.dumps(parameters["exceptionDetails"])[:500])
        elif event.get("method") == "Runtime.consoleAPICalled" and parameters["type"] == "error":
            self.console.append(json.dumps(parameters["args"])[:500])
        elif event.get("method") == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            self.console.append(parameters["entry"]["text"] + parameters["entry"].get("url", ""))

    def open(self, address: str) -> None:
        """Go to a page."""
        self.call("Page.navigate", url=address)

    def run(self, script: str) -> Any:
        """What an expression is worth on the page."""
        result = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def until(self, script: str, seconds: float = 120.0) -> Any:
        """Wait until an expression is true on the page."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if value := self.run(script):
                return value
            time.sleep(0.1)
        raise TimeoutError(f"not true in {seconds} s: {script}")

    def resize(self, width: int, height: int, dark: bool = False) -> None:
        """Another window, and the colours that the system prefers."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def close(self) -> None:
        """End the browser and all its processes."""
        with contextlib.suppress(Exception):
            self.call("Browser.close")
        with contextlib.suppress(Exception):
            self._stack.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
