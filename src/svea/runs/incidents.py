"""incidents.jsonl: what went wrong in a run, and whether the run recovered; a line each.

It is a file of its own and not part of the log: a run that lost a worker and one that did not have
the same log, bit for bit.
"""

from __future__ import annotations

import contextlib
import json
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from svea.core import files
from svea.core.errors import SveaError, UserError
from svea.runs import layout


def record(run: Path, **incident: Any) -> Path | None:
    """Append a line; None if that fails too, because a record must not be a new failure."""
    path = run / layout.INCIDENTS
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    try:
        files.append_lines(path, (json.dumps({"time": now, **incident}) + "\n").encode())
    except (OSError, ValueError, SveaError):
        return None
    return path


@contextlib.contextmanager
def recorded(run: Path) -> Iterator[None]:
    """Record the error that ends a run, with its traceback; a user's mistake is not an incident."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        if getattr(error, "exit_code", 1) < 128 and (run / layout.CONFIG).exists():
            error_file = record(
                run,
                what="run ended",
                error=type(error).__name__,
                cause=str(error),
                details=traceback.format_exc(),
            )
            if isinstance(error, SveaError):
                error.details = error_file
        raise
