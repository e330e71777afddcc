"""A study's folder, on storage that every machine of the study sees, and how far its runs are.

    study.json            the plan: the runs, each with its options of training
    runs/NAME/            the run folders, as training writes them: they say how far each run is
    journal/NAME.jsonl    the attempts at a run; locked while a process works on it
    journal/NAME.log      what those attempts printed
    cancel                exists after `svea sweep cancel`: every run saves and stops

Nothing else is remembered: engine, driver and machines may be lost, and the same command continues.
"""

import dataclasses
import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from svea.core import files
from svea.core.errors import UserError
from svea.core.files import read_json, replace_json
from svea.core.importing import is_import_path, require_trust
from svea.core.seeds import episodes_of_all
from svea.evaluation import check_episodes, episodes_in
from svea.runs import layout
from svea.runs.records import is_agent, latest, read_records
from svea.studies.plan import PlannedRun

FORMAT = 1
STUDY_BYTES = 64 * 2**20  # 1 kB for a run
RUN = {
    "name": str, "values": dict, "decisions": int, "modes": [str], "analyses": [str], "export": str,
}  # fmt: skip
PLAN = {"title": str, "attempts": int, "runs": [RUN]}
"""What study.json holds; and the episodes of each run."""
APPEND = os.O_RDWR | os.O_CREAT | os.O_APPEND
ATTEMPTS = 3
"""Failed attempts after which a run counts as failed."""
STATES = ("queued", "running", "done", "failed")
STEPS = ("trained", "exported", "evaluated", "analysed")
"""What is done for a run, one after the other."""
HOW_MADE = {"svea_version", "command"}  # in config.json, and not about the agent


def run_folder(study: Path, run: PlannedRun) -> Path:
    """The folder that training writes a run to."""
    return study / "runs" / run.name


def journal_path(study: Path, run: PlannedRun, suffix: str = ".jsonl") -> Path:
    """The journal of a run's attempts; or with suffix .log, what its processes printed."""
    return study / "journal" / f"{run.name}{suffix}"


def is_cancelled(study: Path) -> bool:
    """Whether the study was cancelled since its last start."""
    return (study / "cancel").exists()


# The plan -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Study:
    """A plan and its folder."""

    folder: Path
    runs: tuple[PlannedRun, ...]
    title: str = ""
    attempts: int = ATTEMPTS

    def save(self) -> None:
        """Write the plan: these runs as they are now, and the others of earlier plans as they were.

        So `svea sweep status` waits for what the last command asked for, and for nothing else.
        """
        earlier = read_study(self.folder).runs if (self.folder / "study.json").exists() else ()
        runs = {run.name: run for run in (*earlier, *self.runs)}
        content = {
            "format": FORMAT,
            "title": self.title,
            "attempts": self.attempts,
            "runs": [dataclasses.asdict(run) for run in runs.values()],
        }
        try:
            for part in ("runs", "journal"):
                (self.folder / part).mkdir(parents=True, exist_ok=True)
            replace_json(self.folder / "study.json", content)
        except OSError as error:
            raise UserError(f"cannot write {self.folder}: {error}; name another --out") from error
        (self.folder / "cancel").unlink(missing_ok=True)

    def cancel(self) -> None:
        """Ask every process of this study, on any machine, to save and stop."""
        (self.folder / "cancel").touch()


def open_study(
    folder: Path, runs: Sequence[PlannedRun], title: str = "", attempts: int = ATTEMPTS
) -> Study:
    """A study in a folder: a new one, or the one that is there if it is the same.

    It may grow and shrink; a run of one name must mean the same. The title must be common, or a run
    where it has no title yet.
    """
    if attempts < 1:
        raise UserError(f"attempts is {attempts}; allowed: 1 or more")
    study = Study(Path(folder).absolute(), tuple(runs), title, attempts)
    folder = study.folder
    if not (folder / "study.json").exists():
        if folder.is_file() or (folder.exists() and any(folder.iterdir())):
            raise UserError(f"{folder} is not empty and not a study; name another --out")
        return study
    existing = read_study(folder)
    known = {run.name: run for run in existing.runs}
    same = [run for run in runs if run.name in known]
    for run in same:
        old, new = known[run.name].values, run.values
        names = [n for n in sorted({**old, **new}) if old.get(n) != new.get(n)]
        if names:
            words = [f"{n} {old.get(n, 'unset')} there, {new.get(n, 'unset')} here" for n in names]
            raise UserError(
                f"{folder} holds another study; its run {run.name} differs:\n  {', '.join(words)}\n"
                "Give the same options to continue it, or another --out"
            )
    if existing.title != title if existing.title else not same:
        raise UserError(
            f"{folder} holds another study {existing.title!r} of {len(known)} runs; "
            "name another --out"
        )
    return study


def read_study(folder: Path) -> Study:
    """The study in a folder, which must hold an undamaged one."""
    folder = Path(folder).absolute()
    path = folder / "study.json"
    if not path.exists():
        raise UserError(f"{folder} is not a study: it has no study.json. `svea sweep` makes one")
    try:
        content = layout.check(read_json(path, STUDY_BYTES), PLAN, "the plan")
        runs = tuple(map(_planned, content["runs"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError(
            f"{path} cannot be read ({type(error).__name__}: {error}). Move it away and give the "
            "same `svea sweep` command: it writes the file again and keeps the runs"
        ) from error
    methods = [str(run.values.get("method", "")) for run in runs]
    require_trust([name for name in methods if is_import_path(name)], path)
    return Study(folder, runs, content["title"], content["attempts"])


def _planned(entry: dict[str, Any]) -> PlannedRun:
    """A planned run from JSON, which turned tuples into lists."""
    check_episodes(entry["episodes"])
    if not entry["name"] or Path(entry["name"]).name != entry["name"]:
        raise ValueError(f"{entry['name']!r} is not the name of a folder")
    values: dict[str, Any] = {name: entry[name] for name in (*RUN, "episodes")}
    values |= {name: tuple(entry[name]) for name in ("modes", "analyses")}
    return PlannedRun(**values)


# How far a run is ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Progress:
    """How far a run is, by its run folder."""

    decision: int = 0
    """Of the last line of its log."""
    seconds: float | None = None
    """At that line."""
    returns: dict[str, float] = field(default_factory=dict)
    """Mean return of the last evaluation during training, by mode."""
    saved: int = -1  # without a checkpoint
    left: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """What each of `STEPS` has left to do, by name: modes, analyses."""

    @property
    def known(self) -> int:
        """The last decision that is known of: a short run may end between two lines of its log."""
        return max(self.decision, self.saved)

    @property
    def trained(self) -> bool:
        """Whether training is over; what follows it may be left."""
        return not self.left["trained"]

    @property
    def done(self) -> bool:
        """Whether nothing is left to do."""
        return not any(self.left.values())

    def can(self, step: str) -> bool:
        """Whether a step is left to do, and can be done."""
        return bool(self.left[step]) and (self.trained or step == "trained")


@dataclass(frozen=True)
class RunState:
    """One of `STATES`, and the reasons for it."""

    run: PlannedRun
    state: str
    progress: Progress
    folder: Path
    """The run's own."""
    failures: int = 0
    """Failed attempts at what it is at: training, or what follows it."""
    refused: bool = False
    """The last attempt at something ended with bad input: trying again would not help."""
    reason: str = ""

    @property
    def is_active(self) -> bool:
        """Whether it is queued or running."""
        return self.state in ("queued", "running")

    @property
    def made(self) -> int:
        """Decisions with an update: those of a warm-up take another time, unless it is all."""
        at, config = self.progress.decision, self.run.config
        return 0 if at <= config.warmup < config.decisions else at

    @property
    def to_make(self) -> int:
        """Decisions that are left, those of a warm-up included."""
        return max(self.run.decisions - self.made, 0)

    @property
    def is_tried_again(self) -> bool:
        """Whether the same command tries a failed run again: after bad input, or after training."""
        return self.state == "failed" and (self.refused or self.progress.trained)


def read_states(study: Study) -> list[RunState]:
    """The state of every run now; reads a few kilobytes of each."""
    return [read_state(study.folder, run, study.attempts) for run in study.runs]


def read_state(study: Path, run: PlannedRun, attempts: int = ATTEMPTS) -> RunState:
    """The state of a run: its folder says how far it is, its journal what was tried."""
    journal, progress = journal_path(study, run), read_progress(study, run)
    ends = [entry for entry in read_journal(journal) if entry.get("event") == "end"]
    failures = sum(
        entry.get("outcome") == "failed"
        and (entry.get("step", "trained") != "trained") == progress.trained
        for entry in ends
    )
    last = {str(entry.get("step")): entry for entry in ends}.values()
    bad = [entry for entry in last if entry.get("outcome") in ("failed", "refused")]
    refused = any(entry["outcome"] == "refused" for entry in bad)
    if files.is_locked(journal):
        state = "running"
    elif progress.done:
        state = "done"
    else:
        state = "failed" if refused or failures >= attempts else "queued"
    reason = str(bad[-1].get("reason", "")) if bad else ""
    return RunState(run, state, progress, run_folder(study, run), failures, refused, reason)


def read_progress(study: Path, run: PlannedRun) -> Progress:
    """How far a run of a study is: its newest checkpoint, and the end of its log."""
    folder = run_folder(study, run)
    lines = files.last_lines(folder / layout.METRICS)
    newest = next(filter(None, map(files.parse_line, reversed(lines))), {})
    evaluated_in = [line for line in lines if b'"return_mean"' in line]
    evaluations = list(filter(None, map(files.parse_line, evaluated_in)))  # a half line is left out
    evaluated = evaluations[-1]["decision"] if evaluations else -1
    saved = layout.newest_checkpoint(folder)
    # Without evaluations during training, none is waited for.
    trained = min(saved, evaluated if run.config.eval_every else saved) >= run.decisions
    exported = not run.export or (trained and _is_exported(folder, run, saved))
    left = {
        "trained": () if trained else ("training",),
        "exported": () if exported else ("export",),
        "evaluated": _missing_modes(folder, run, saved) if trained else run.modes,
        "analysed": tuple(
            name for name in run.analyses if not layout.analysis_file(folder, name).exists()
        ),
    }
    returns = {record["mode"]: record["return_mean"] for record in evaluations}
    return Progress(newest.get("decision", 0), newest.get("seconds"), returns, saved, left)


def export_is_taken(state: RunState) -> bool:
    """Whether something other than a run's agent lies where the run is to be exported to."""
    run, target = state.run, state.run.export_folder
    try:
        if not layout.is_taken(target):
            return False
    except OSError:  # a folder that we may not read is not ours
        return True
    last = state.progress.saved if state.progress.trained else run.decisions
    return not _is_exported(state.folder, run, last)


def _is_exported(folder: Path, run: PlannedRun, decision: int) -> bool:
    """Whether the agent of a decision lies where it is to be exported to, and not another one."""
    try:
        kept, own = (
            read_json(place / layout.CONFIG, layout.CONFIG_BYTES)
            for place in (run.export_folder, folder)
        )
        same = all(kept[name] == own[name] for name in own.keys() - HOW_MADE)
        return same and bool(kept["decision"] == decision)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return False


def _missing_modes(folder: Path, run: PlannedRun, decision: int) -> tuple[str, ...]:
    """Modes in which the agent of the last decision has played too few episodes."""
    if not run.modes:
        return ()
    played: dict[str, list[Any]] = {mode: [{}] for mode in run.modes}
    for episode in latest(r for r in read_records(folder) if is_agent(r)):
        if episode.get("decision") == decision and (mode := str(episode.get("mode"))) in played:
            played[mode].append(episode.get("provenance"))
    missing = []
    for mode, (*earlier, newest) in played.items():
        wanted = episodes_in(run.episodes, mode)
        if not isinstance(wanted, int):  # each of its worlds; how many it has, its records say
            worlds = newest.get("worlds") if isinstance(newest, dict) else None
            wanted = episodes_of_all(worlds if isinstance(worlds, int) else 1)
        if len(earlier) < wanted:
            missing.append(mode)
    return tuple(missing)


# The journals -------------------------------------------------------------------------------------


def write_entry(study: Path, run: PlannedRun, **entry: Any) -> None:
    """Append one line to a run's journal."""
    line = json.dumps({"time": round(time.time(), 3), **entry})
    with files.closing(files.descriptor(journal_path(study, run), APPEND)) as journal:
        files.append(journal, f"{line}\n".encode())


def read_journal(path: Path) -> list[dict[str, Any]]:
    """The entries of a journal; the half line of a killed writer is left out."""
    return files.json_lines(path, layout.LOG_BYTES)


def worker(study: Path, run: PlannedRun) -> str:
    """The process that works on a run, as far as its journal tells: that of its last attempt."""
    starts = [e for e in read_journal(journal_path(study, run)) if e.get("event") == "start"]
    last = starts[-1] if starts else {}
    return f"process {last['pid']} on {last['host']}" if "pid" in last else "another process"
