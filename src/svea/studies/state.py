"""The state of every run of a study, read from its folder and its journal alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeGuard

from svea.core import files
from svea.core.errors import LARGEST, UserError
from svea.core.seeds import episodes_of_all
from svea.evaluation.episodes import episodes_in
from svea.runs import layout
from svea.runs.records import Record, is_agent, latest, parse_line, read_records
from svea.studies.folder import ATTEMPTS, Study, journal_path, run_folder
from svea.studies.plan import PlannedRun

TAIL_BYTES = 65_536  # of metrics.jsonl: enough for the last evaluation in a dozen modes
STATES = ("queued", "running", "done", "stopped", "failed")
"""A run is stopped if it has not made all of its decisions and never will; see `Progress`."""
Entry = dict[str, Any]
"""One line of a journal."""
HOW_MADE = {"svea_version", "command"}  # in config.json, and not about the agent


@dataclass(frozen=True)
class Progress:
    """How far a run is."""

    decision: int = 0
    """Of the last line of its log; of a stopped run, of its checkpoint."""
    seconds: float | None = None
    """At that line."""
    returns: dict[str, float] = field(default_factory=dict)
    """Mean return of the last evaluation during training, by mode."""
    trained: bool = False
    stopped: bool = False
    """It was asked to stop before its end and saved without its replay: it cannot be continued."""
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
    def ended(self) -> bool:
        """Whether the agent is what it will stay: what follows training can be done."""
        return self.trained or self.stopped

    @property
    def over(self) -> bool:
        """Whether nothing is left to do."""
        missing = self.missing_modes or self.missing_analyses or self.missing_export
        return self.ended and not missing

    @property
    def done(self) -> bool:
        """Whether all was done, training to its last decision included."""
        return self.trained and self.over


@dataclass(frozen=True)
class RunState:
    """One of `STATES`, and the reasons for it."""

    run: PlannedRun
    state: str
    progress: Progress
    failures: int = 0
    """Failed attempts at training."""
    failures_after: int = 0
    """Failed attempts at what follows it: exports, evaluations, analyses."""
    refused: bool = False
    """The last attempt ended with bad input: trying again would not help."""
    reason: str = ""
    trains_together: bool = False
    """The process that works on it is training several runs: others may not have ended yet."""

    @property
    def is_tried_again(self) -> bool:
        """Whether the same command tries a failed run again: after bad input, or after training."""
        return self.state == "failed" and (self.refused or self.progress.ended)


def read_states(study: Study) -> list[RunState]:
    """The state of every run now; reads a few kilobytes of each."""
    return [read_state(study.folder, run, study.attempts) for run in study.runs]


def read_state(study: Path, run: PlannedRun, attempts: int = ATTEMPTS) -> RunState:
    """The state of one run of the study in a folder."""
    journal = journal_path(study, run)
    is_running = files.is_locked(journal)
    progress = read_progress(study, run, is_over=not is_running)
    entries = read_journal(journal)
    ends = [entry for entry in entries if entry.get("event") == "end"]
    failed = [entry for entry in ends if entry.get("outcome") == "failed"]
    after = sum(entry.get("ended") is True for entry in failed)
    failures = len(failed) - after
    last = ends[-1] if ends else {}
    refused = last.get("outcome") == "refused"
    if is_running:
        state = "running"
    elif progress.over:
        state = "done" if progress.trained else "stopped"
    else:
        is_spent = (after if progress.ended else failures) >= attempts
        state = "failed" if refused or is_spent else "queued"
    reason = str(last.get("reason", "")) if last.get("outcome") in ("failed", "refused") else ""
    together = state == "running" and entries[-1:] != [] and entries[-1].get("training") is True
    return RunState(run, state, progress, failures, after, refused, reason, together)


def read_progress(study: Path, run: PlannedRun, *, is_over: bool = False) -> Progress:
    """How far a run of a study is: its newest checkpoint, and the end of its log.

    Args:
        study: its folder.
        run: which run.
        is_over: no process works on it now, so an attempt without an end has lost its supervisor.
    """
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
    stopped = not trained and _is_stopped(study, run, saved, is_over)
    ended = trained or stopped
    modes = _missing_modes(folder, run, saved) if ended else run.modes
    analyses = tuple(
        name for name in run.analyses if not layout.analysis_file(folder, name).exists()
    )
    unexported = bool(run.export) and not (ended and _is_exported(folder, run, saved))
    at, seconds = saved if stopped else newest.get("decision", 0), newest.get("seconds")
    seconds = seconds if _is_number(seconds) and seconds > 0 else None
    return Progress(at, seconds, returns, trained, stopped, modes, analyses, unexported, saved)


def _is_stopped(study: Path, run: PlannedRun, saved: int, is_over: bool) -> bool:
    """Whether a run saved last because it was asked to stop, and cannot be continued from there.

    One that lost its supervisor counts as asked to stop: its process has seen that and saved, or
    died with it. One that failed since its last stop is not: it is tried again, and says itself why
    that cannot work.
    """
    if run.config.save_replay or saved <= 0:
        return False
    entries = read_journal(journal_path(study, run))
    began = stopped = None
    for entry in _with_every_end(entries, saved if is_over else None):
        if entry.get("event") == "start":
            began = entry.get("saved")
            stopped = stopped if began == stopped else None  # begun again: its folder was removed
        elif entry.get("outcome") == "stopped" and entry.get("saved") != began:
            stopped = entry.get("saved")
    return stopped == saved


def _with_every_end(entries: Sequence[Entry], saved: int | None) -> Iterator[Entry]:
    """The entries of a journal, with the ends that killed supervisors did not write.

    Args:
        entries: as they were written.
        saved: the newest checkpoint, if no process works on the run now; None: its last attempt may
            go on.
    """
    attempt: list[Entry] = []
    for entry in entries:
        if attempt and entry.get("event") == "start":
            yield from missing_end(attempt, entry.get("saved"))
            attempt = []
        attempt.append(entry)
        yield entry
    if saved is not None:
        yield from missing_end(attempt, saved)


def missing_end(entries: Sequence[Entry], saved: Any) -> list[Entry]:
    """The end that a journal lacks because its supervisor was killed; none where none is missing.

    A run without a journal may have lost it, or was trained by hand; either is over, too.

    Args:
        entries: of the journal, or of one attempt, on which no process works now.
        saved: the decision of the newest checkpoint after it.
    """
    last: list[Entry] = []
    for entry in entries:
        last = [entry] if entry.get("event") == "start" else [*last, entry]
    events = [entry.get("event") for entry in last]
    if "end" in events or (not last and saved <= 0):
        return []
    end: Entry = {"event": "end", "outcome": "stopped", "saved": saved, "reason": "", "lost": True}
    if "error" in events:
        code, reason = last[-1].get("code"), last[-1].get("reason")
        outcome = "refused" if code == UserError.exit_code else "failed"
        end |= {"outcome": outcome, "code": code, "reason": f"exit code {code}: {reason}"}
    return [end]


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


def export_is_taken(study: Path, state: RunState) -> bool:
    """Whether something other than a run's agent lies where the run is to be exported to."""
    run, target = state.run, state.run.export_folder
    try:
        if not target.exists() or layout.is_unfinished_export(target):
            return False
    except OSError:  # a folder that we may not read is not ours
        return True
    last = state.progress.saved if state.progress.ended else run.decisions
    return not _is_exported(run_folder(study, run), run, last)


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
