"""incidents.jsonl: what went wrong in a run, and whether it was mended; a line each.

It stands beside the log and not in it: a run that lost a worker and one that did not have the same
log, bit for bit.
"""

from __future__ import annotations

import contextlib
import json
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from svea.errors import SveaError, UserError

NAME = "incidents.jsonl"


def note(run: Path, **incident: Any) -> Path | None:
    """Append a line; None if that, too, is impossible, because a note must not be a new failure."""
    path = run / NAME
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    try:
        with path.open("a") as file:
            file.write(json.dumps({"time": now, **incident}) + "\n")
    except (OSError, ValueError):
        return None
    return path


@contextlib.contextmanager
def noted(run: Path) -> Iterator[None]:
    """Note the error that ends a run, with its traceback; a user's mistake is none."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        if getattr(error, "exit_code", 1) < 128 and (run / "config.json").exists():
            place = note(
                run,
                what="run ended",
                error=type(error).__name__,
                cause=str(error),
                details=traceback.format_exc(),
            )
            if isinstance(error, SveaError):
                error.details = place
        raise
