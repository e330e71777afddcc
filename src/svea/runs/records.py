"""eval.jsonl: one line per evaluation episode, written as soon as the episode ends.

The file only grows. Of two records of one episode the later one counts, so that evaluating again
replaces without rewriting, and an evaluation that is killed loses at most half a line.

And incidents.jsonl: what went wrong in a run, and whether it recovered. It is a file of its own and
not part of the log: a run that lost a worker and one that did not have the same log, bit for bit.
"""

import contextlib
import json
import time
import traceback
from collections import Counter
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


def episode_key(record: Record, names: tuple[str, ...] = PROTOCOL) -> str:
    """What the episode's outcome depends on, or other entries of its record, as text."""
    return json.dumps([record.get(name) for name in names], sort_keys=True)


def latest(records: Iterable[Record]) -> list[Record]:
    """The record that counts of each episode, in the order in which the episodes first appear.

    Not those of a mode that was evaluated later with other pictures (another renderer, other clips,
    another choice of an episode's world): one mean over both would be of neither.
    """
    counting = (record for record, own, newest in _with_newest(records) if own == newest)
    return list({episode_key(record, EPISODE): record for record in counting}.values())


def _with_newest(records: Iterable[Record]) -> Iterator[tuple[Record, Any, Any]]:
    """Each record with its provenance, and the newest one of its evaluation if it has any."""
    records = list(records)
    telling = [r for r in records if isinstance(r.get("provenance"), dict)]
    newest = {episode_key(record, EVALUATION): record["provenance"] for record in telling}
    for record in records:
        own = record.get("provenance")
        yield record, own, newest[episode_key(record, EVALUATION)] if isinstance(own, dict) else own


def older_pictures(records: Iterable[Record]) -> Counter[str]:
    """How many records `latest` leaves out for their pictures, by why, in words."""
    pairs = ((own, newest) for _, own, newest in _with_newest(records))
    return Counter(explain(own, newest) for own, newest in pairs if own != newest)


def replayed(new: Iterable[Record], recorded: Iterable[Record]) -> Counter[str]:
    """How many new records are of episodes that were recorded with other pictures, by why."""
    same = (*EPISODE, "weights", "actions")
    before = {episode_key(record, same): record.get("provenance") for record in recorded}
    known = (record for record in new if episode_key(record, same) in before)
    return Counter(explain(before[episode_key(r, same)], r.get("provenance")) for r in known)


def explain(before: Any, now: Any) -> str:
    """What two records' provenance differ in, in words."""
    changed = differing(before, now).items()
    return "; ".join(f"{name} {old}, later {new}" for name, (old, new) in changed) or "other data"


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
    return files.json_lines(run / layout.EVALUATIONS, layout.LOG_BYTES, parse_record)


def append_records(run: Path, records: Iterable[Record]) -> None:
    """Put records at the end of a run's file; half a line of a killed evaluation goes."""
    text = "".join(json.dumps(record, allow_nan=False) + "\n" for record in records)
    files.append_lines(run / layout.EVALUATIONS, text.encode())


def parse_record(line: bytes) -> Record | None:
    """A line of eval.jsonl; None where it is damaged, or has a text in place of a number."""
    record = files.parse_line(line)
    numbers = [record[name] for name in _NUMBERS if name in record] if record else []
    return record if all(type(value) in (int, float) for value in numbers) else None


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
            about = {"error": type(error).__name__, "cause": str(error)}
            path = record_incident(run, what="run ended", **about, details=traceback.format_exc())
            if isinstance(error, SveaError):
                error.details = path
        raise
