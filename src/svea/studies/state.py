"""How far every run of a study is. Its run folder says so; its journal counts the attempts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeGuard

from svea.core import files
from svea.core.errors import LARGEST
from svea.core.seeds import episodes_of_all
from svea.evaluation.episodes import episodes_in
from svea.runs import layout
from svea.runs.records import Record, is_agent, latest, parse_line, read_records
from svea.studies.folder import ATTEMPTS, Study, journal_path, run_folder
from svea.studies.plan import PlannedRun

TAIL_BYTES = 65_536  # of metrics.jsonl: enough for the last evaluation in a dozen modes
STATES = ("queued", "running", "done", "failed")
Entry = dict[str, Any]
"""One line of a journal."""
HOW_MADE = {"svea_version", "command"}  # in config.json, and not about the agent


@dataclass(frozen=True)
class Progress:
    """How far a run is."""

    decision: int = 0
    """Of the last line of its log."""
    seconds: float | None = None
    """At that line."""
    returns: dict[str, float] = field(default_factory=dict)
    """Mean return of the last evaluation during training, by mode."""
    trained: bool = False
    missing_modes: tuple[str, ...] = ()
    missing_analyses: tuple[str, ...] = ()
    missing_export: bool = False
    saved: int = -1
    """The decision of its newest checkpoint, -1 without one."""

    @property
    def known(self) -> int:
        """The last decision that is known of: a short run may end between two lines of its log."""
        return max(self.decision, self.saved)

    @property
    def done(self) -> bool:
        """Whether nothing is left to do."""
        missing = self.missing_modes or self.missing_analyses or self.missing_export
        return self.trained and not missing


@dataclass(frozen=True)
class RunState:
    """One of `STATES`, and the reasons for it."""

    run: PlannedRun
    state: str
    progress: Progress
    folder: Path
    """The run's own."""
    failures: int = 0
    """Failed attempts at training."""
    failures_after: int = 0
    """Failed attempts at what follows it: exports, evaluations, analyses."""
    refused: bool = False
    """The last attempt at something ended with bad input: trying again would not help."""
    reason: str = ""

    @property
    def is_tried_again(self) -> bool:
        """Whether the same command tries a failed run again: after bad input, or after training."""
        return self.state == "failed" and (self.refused or self.progress.trained)


def read_states(study: Study) -> list[RunState]:
    """The state of every run now; reads a few kilobytes of each."""
    return [read_state(study.folder, run, study.attempts) for run in study.runs]


def read_state(study: Path, run: PlannedRun, attempts: int = ATTEMPTS) -> RunState:
    """The state of one run of the study in a folder."""
    journal = journal_path(study, run)
    progress = read_progress(study, run)
    ends = [entry for entry in read_journal(journal) if entry.get("event") == "end"]
    failed = [entry for entry in ends if entry.get("outcome") == "failed"]
    after = sum(entry.get("ended") is True for entry in failed)
    last = {entry.get("step"): entry for entry in ends}
    bad = [e for e in ends if e.get("outcome") in ("failed", "refused") and e in last.values()]
    refused = any(entry.get("outcome") == "refused" for entry in bad)
    is_spent = (after if progress.trained else len(failed) - after) >= attempts
    if files.is_locked(journal):
        state = "running"
    elif progress.done:
        state = "done"
    else:
        state = "failed" if refused or is_spent else "queued"
    reason = str(bad[-1].get("reason", "")) if bad else ""
    folder = run_folder(study, run)
    return RunState(run, state, progress, folder, len(failed) - after, after, refused, reason)


def read_progress(study: Path, run: PlannedRun) -> Progress:
    """How far a run of a study is: its newest checkpoint, and the end of its log."""
    folder = run_folder(study, run)
    lines = _last_lines(folder / layout.METRICS)
    newest = next(_with_decision(reversed(lines)), {})
    returns: dict[str, float] = {}
    evaluated = -1
    for record in _with_decision(line for line in lines if b'"return_mean"' in line):
        if _is_number(record.get("return_mean")):
            returns[str(record.get("mode"))] = record["return_mean"]
            evaluated = record["decision"]
    saved = layout.newest_checkpoint(folder)
    last = evaluated if run.config.eval_every else saved  # without evaluations none is waited for
    trained = min(saved, last) >= run.decisions
    modes = _missing_modes(folder, run, saved) if trained else run.modes
    analyses = tuple(
        name for name in run.analyses if not layout.analysis_file(folder, name).exists()
    )
    unexported = bool(run.export) and not (trained and _is_exported(folder, run, saved))
    seconds = newest.get("seconds")
    seconds = seconds if _is_number(seconds) and seconds > 0 else None
    decision = newest.get("decision", 0)
    return Progress(decision, seconds, returns, trained, modes, analyses, unexported, saved)


def read_journal(path: Path) -> list[Entry]:
    """The entries of a journal; the half line of a killed writer is left out."""
    with files.reading(path):
        try:
            parsed = list(map(parse_line, files.read_lines(path, layout.LOG_BYTES)))
        except FileNotFoundError:
            return []
    return [entry for entry in parsed if entry is not None]


def worker(study: Path, run: PlannedRun) -> str:
    """The process that works on a run, as far as its journal tells: that of its last attempt."""
    starts = [e for e in read_journal(journal_path(study, run)) if e.get("event") == "start"]
    last = starts[-1] if starts else {}
    return f"process {last['pid']} on {last['host']}" if "pid" in last else "another process"


def _last_lines(path: Path) -> list[bytes]:
    """The whole lines among the last bytes of a log."""
    try:
        tail = files.read_tail(path, TAIL_BYTES)
        return tail.splitlines()[len(tail) == TAIL_BYTES :]  # the first may have begun before
    except OSError:
        return []


def _with_decision(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Lines as records with a decision; damaged ones are left out."""
    for record in map(parse_line, lines):
        if record is not None and _is_number(at := record.get("decision")) and at == int(at):
            yield record | {"decision": int(at)}


def _is_number(value: Any) -> TypeGuard[float]:
    """Whether a value can be calculated with: finite, and not larger than any that we write."""
    return isinstance(value, int | float) and abs(value) <= LARGEST


def _is_exported(folder: Path, run: PlannedRun, decision: int) -> bool:
    """Whether the agent of a decision lies where it is to be exported to, and not another one."""
    try:
        kept, own = (
            files.read_json(place / layout.CONFIG, layout.CONFIG_BYTES)
            for place in (run.export_folder, folder)
        )
        same = all(kept[name] == own[name] for name in own.keys() - HOW_MADE)
        return same and bool(kept["decision"] == decision)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return False


def export_is_taken(state: RunState) -> bool:
    """Whether something other than a run's agent lies where the run is to be exported to."""
    run, target = state.run, state.run.export_folder
    try:
        if not target.exists() or layout.is_unfinished_export(target):
            return False
    except OSError:  # a folder that we may not read is not ours
        return True
    last = state.progress.saved if state.progress.trained else run.decisions
    return not _is_exported(state.folder, run, last)


def _missing_modes(folder: Path, run: PlannedRun, decision: int) -> tuple[str, ...]:
    """Modes in which the agent of the last decision has played too few episodes."""
    if not run.modes:
        return ()
    episodes = latest(r for r in read_records(folder) if is_agent(r))
    played = [episode for episode in episodes if episode.get("decision") == decision]
    return tuple(
        mode
        for mode in run.modes
        if not _is_evaluated(
            [one for one in played if one.get("mode") == mode], episodes_in(run.episodes, mode)
        )
    )


def _is_evaluated(played: Sequence[Record], wanted: int | str) -> bool:
    """Whether the episodes of one mode are as many as were asked for."""
    if isinstance(wanted, int) or not played:
        return bool(played) and len(played) >= int(wanted)
    provenance = played[-1].get("provenance")
    worlds = provenance.get("worlds") if isinstance(provenance, dict) else None
    return len(played) >= episodes_of_all(worlds if isinstance(worlds, int) else 1)
