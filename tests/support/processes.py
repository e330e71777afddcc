"""Whether processes have ended, and waiting for what another process or thread does."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def alive(pid: int) -> bool:
    """Whether a process runs; one whose end nobody has read yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for(condition: Callable[[], Any], seconds: float = 30.0) -> Any:
    """What it returns once that is true; an AssertionError if it does not become so."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)
    return found
