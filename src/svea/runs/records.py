"""eval.jsonl: one line per evaluation episode, written as soon as the episode ends.

The file only grows. Of two records of one episode the later one counts, so that evaluating again
replaces without rewriting, and an evaluation that is killed loses at most half a line. Where a mode
was evaluated with other pictures later, only the later records count; `svea eval` writes a record
once more if it is asked for again after that.

And incidents.jsonl: what went wrong in a run, and whether it recovered. It is a file of its own and
not part of the log: a run that lost a worker and one that did not have the same log, bit for bit.
"""

from __future__ import annotations

import contextlib
import json
import time
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from svea.core import files
from svea.core.errors import SveaError, UserError
from svea.data.clips import source_of
from svea.runs import layout

Record = dict[str, Any]

EPISODE = ("policy", "decision", "mode", "seed")
"""What one evaluation episode of a run is: of two records with these the same, the later counts."""

EVALUATION = ("policy", "decision", "mode")
"""The episodes with these the same make one score, if their pictures have one provenance."""

PROTOCOL = (*EPISODE, "weights", "actions", "provenance")
"""An episode with all of these the same would be played the same: it need not be played again.

Provenance says who draws and simulates, which data are shown, and of which version episodes are
(`svea.envs.looks.EPISODES_VERSION`). Records from before it did say none of that.
"""

NOT_RECORDED = "not recorded"
MADE_WITH = {
    "renderer": "renderers",
    "episodes": "versions of episodes",
    "mujoco": "versions of MuJoCo",
    "dm_control": "versions of dm_control",
    "source": "data",
    "sha256": "data",
}
"""What of two records' provenance is compared in words, and what several of it are called."""

_NUMBERS = ("seed", "episode", "length", "adaptation_seconds")


def episode_key(record: Record) -> str:
    """Which episode of its run a record is about, as text."""
    return _key(record, EPISODE)


def protocol_key(record: Record) -> str:
    """What the episode's outcome depends on, as text."""
    return _key(record, PROTOCOL)


def _key(record: Record, names: tuple[str, ...]) -> str:
    return json.dumps([record.get(name) for name in names], sort_keys=True)


def latest(records: Iterable[Record]) -> list[Record]:
    """The record that counts of each episode, in the order in which the episodes first appear."""
    return list({episode_key(record): record for record in newest_pictures(records)}.values())


def newest_pictures(records: Iterable[Record]) -> list[Record]:
    """Records without those of a mode that was evaluated later with other pictures.

    Another renderer, other clips, or another choice of an episode's world: one mean over both would
    be of neither. A record without any provenance is kept.
    """
    records = list(records)
    newest = _newest(records)

    def counts(record: Record) -> bool:
        own = record.get("provenance")
        return not isinstance(own, dict) or own == newest[_key(record, EVALUATION)]

    return [record for record in records if counts(record)]


def _newest(records: Iterable[Record]) -> dict[str, Record]:
    """The newest provenance of each evaluation."""
    telling = (r for r in records if isinstance(r.get("provenance"), dict))
    return {_key(record, EVALUATION): record["provenance"] for record in telling}


def older_pictures(records: Iterable[Record]) -> dict[str, int]:
    """How many records `newest_pictures` leaves out, by why, in words."""
    records = list(records)
    newest, found = _newest(records), dict[str, int]()
    for record in records:
        own, later = record.get("provenance"), newest.get(_key(record, EVALUATION))
        if isinstance(own, dict) and own != later:
            why = explain(own, later)
            found[why] = found.get(why, 0) + 1
    return found


def replayed(new: Iterable[Record], recorded: Iterable[Record]) -> dict[str, int]:
    """How many new records are of episodes that were recorded with other pictures, by why."""
    same = (*EPISODE, "weights", "actions")
    before = {_key(record, same): record.get("provenance") for record in recorded}
    found: dict[str, int] = {}
    for record in new:
        if (key := _key(record, same)) in before:
            why = explain(before[key], record.get("provenance"))
            found[why] = found.get(why, 0) + 1
    return found


def explain(before: Any, now: Any) -> str:
    """What two records' provenance differ in, in words."""
    changed = differing(before, now)
    told = (f"{name} {old}, later {new}" for name, (old, new) in changed.items())
    return "; ".join(told) or "other data"


def differing(one: Any, other: Any) -> dict[str, tuple[str, str]]:
    """What of `MADE_WITH` is not the same in two records' provenance, as both say it."""
    found = {name: (made_with(one, name), made_with(other, name)) for name in MADE_WITH}
    return {name: pair for name, pair in found.items() if len(told_apart(name, pair)) > 1}


def made_with(provenance: Any, name: str) -> str:
    """One entry of a provenance in words."""
    given = provenance if isinstance(provenance, dict) else {}
    if name == "source":
        return source_of(given)
    found = str(given.get(name, NOT_RECORDED))
    return found[:8] if name == "sha256" else found


def told_apart(name: str, values: Iterable[str]) -> list[str]:
    """The values that differ; versions that were not recorded yet are those of no renderer."""
    return sorted(set(values) - (set() if name == "renderer" else {NOT_RECORDED}))


def is_agent(record: Record) -> bool:
    """Whether the agent played the episode, and not the random policy."""
    return bool(record.get("policy", "agent") == "agent")


def read_records(run: Path) -> list[Record]:
    """The records of a run, damaged lines left out (`svea report` names them)."""
    path = run / layout.EVALUATIONS
    with files.reading(path):
        try:
            parsed = [parse_record(line) for line in files.read_lines(path, layout.LOG_BYTES)]
        except FileNotFoundError:
            return []
    return [record for record in parsed if record is not None]


def append_records(run: Path, records: Iterable[Record]) -> None:
    """Put records at the end of a run's file; half a line of a killed evaluation goes."""
    text = "".join(json.dumps(record, allow_nan=False) + "\n" for record in records)
    path = run / layout.EVALUATIONS
    with files.writing(path, len(text)):
        files.append_lines(path, text.encode())


def parse_record(line: bytes) -> Record | None:
    """A line of eval.jsonl; None where it is damaged, or has a text in place of a number."""
    record = parse_line(line)
    numbers = [record[name] for name in _NUMBERS if name in record] if record else []
    return record if all(type(value) in (int, float) for value in numbers) else None


def parse_line(line: bytes) -> Record | None:
    """A line as a JSON object; None where it is damaged, or something else."""
    try:
        record = files.parse_json(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def record_incident(run: Path, **incident: Any) -> Path | None:
    """Append a line; None if that fails too, because a record must not be a new failure."""
    path = run / layout.INCIDENTS
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    try:
        files.append_lines(path, (json.dumps({"time": now, **incident}) + "\n").encode())
    except (OSError, ValueError, SveaError):
        return None
    return path


@contextlib.contextmanager
def recording_incidents(run: Path) -> Iterator[None]:
    """Record the error that ends a run, with its traceback; a user's mistake is not an incident."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        if getattr(error, "exit_code", 1) < 128 and (run / layout.CONFIG).exists():
            error_file = record_incident(
                run,
                what="run ended",
                error=type(error).__name__,
                cause=str(error),
                details=traceback.format_exc(),
            )
            if isinstance(error, SveaError):
                error.details = error_file
        raise
