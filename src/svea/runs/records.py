"""eval.jsonl: one line per evaluation episode, written as soon as the episode ends.

The file only grows. Of two records of one episode the later one counts, so that evaluating again
replaces without rewriting, and an evaluation that is killed loses at most half a line.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from svea.errors import StorageError

FILE = "eval.jsonl"

Record = dict[str, Any]

PROTOCOL = ("policy", "decision", "weights", "mode", "seed", "actions", "svea_version",
            "provenance")  # fmt: skip
"""An episode with all of these the same would be played the same: it need not be played again."""


def key(record: Record) -> str:
    """What an episode's outcome depends on, as text."""
    return json.dumps([record.get(name) for name in PROTOCOL], sort_keys=True)


def read_records(run: Path) -> list[Record]:
    """The records of a run, damaged lines left out (`svea report` names them)."""
    try:
        text = (run / FILE).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StorageError(f"cannot read {run / FILE}: {error.strerror}") from error
    parsed = (parse_line(line) for line in text.splitlines())
    return [record for record in parsed if record is not None]


def append_records(run: Path, records: Iterable[Record]) -> None:
    """Put records at the end of a run's file, on lines of their own."""
    text = "".join(json.dumps(record, allow_nan=False) + "\n" for record in records)
    path = run / FILE
    try:
        with path.open("ab+") as file:
            if file.seek(0, 2):
                file.seek(-1, 2)
                if file.read(1) != b"\n":  # half a line of a killed evaluation
                    text = "\n" + text
            file.write(text.encode())
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror}") from error


def parse_line(line: str | bytes) -> Record | None:
    """A line as a JSON object; None where it is damaged, or something else."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None
