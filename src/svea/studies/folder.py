"""A study's folder, on storage that every machine of the study sees.

    study.json            the plan: the runs, each with its options of training
    runs/NAME/            the run folders, as training writes them
    journal/NAME.jsonl    the attempts at a run; locked while a process works on it
    journal/NAME.log      what those attempts printed
    cancel                exists after `svea sweep cancel`: every run saves and stops

Nothing else is remembered: an engine, its driver and its machines may all be lost, and the same
command continues from these folders.
"""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from svea.core import files
from svea.core.errors import LARGEST, UserError
from svea.core.files import read_json, replace_json
from svea.core.importing import is_import_path, require_trust
from svea.evaluation.episodes import check_episodes
from svea.studies.plan import PlannedRun

FORMAT = 1
STUDY_BYTES = 64 * 2**20  # 1 kB for a run
APPEND = os.O_RDWR | os.O_CREAT | os.O_APPEND
ATTEMPTS = 3
"""Failed attempts after which a run counts as failed."""


def run_folder(study: Path, run: PlannedRun) -> Path:
    """The folder that `svea train` writes a run to."""
    return study / "runs" / run.name


def journal_path(study: Path, run: PlannedRun) -> Path:
    """The journal of a run's attempts."""
    return study / "journal" / f"{run.name}.jsonl"


def log_path(study: Path, run: PlannedRun) -> Path:
    """What the processes of a run printed."""
    return study / "journal" / f"{run.name}.log"


def is_cancelled(study: Path) -> bool:
    """Whether the study was cancelled since it was last started."""
    return (study / "cancel").exists()


def write_entry(journal: int, **entry: Any) -> None:
    """Append one line to an open journal."""
    line = json.dumps({"time": round(time.time(), 3), **entry})
    files.append(journal, f"{line}\n".encode())


@dataclass(frozen=True)
class Study:
    """A plan and its folder."""

    folder: Path
    runs: tuple[PlannedRun, ...]
    title: str = ""
    attempts: int = ATTEMPTS

    def run_folder(self, run: PlannedRun) -> Path:
        """The folder of a run."""
        return run_folder(self.folder, run)

    def save(self) -> None:
        """Write the plan: these runs as they are now, and the others of earlier plans as they were.

        What follows training is not added up, so that `sweep status` waits for what the last
        command asked for, and for nothing else.
        """
        earlier = read_study(self.folder).runs if self._is_written else ()
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
            raise UserError(
                f"cannot write the study {self.folder}: {error}; name another --out"
            ) from error
        (self.folder / "cancel").unlink(missing_ok=True)

    @property
    def _is_written(self) -> bool:
        return (self.folder / "study.json").exists()

    def cancel(self) -> None:
        """Ask every process of this study, on any machine, to save and stop."""
        (self.folder / "cancel").touch()


def open_study(
    folder: Path, runs: Sequence[PlannedRun], title: str = "", attempts: int = ATTEMPTS
) -> Study:
    """A study in a folder: a new one, or the one that is there if it is the same.

    A study may grow and shrink: more seeds, fewer tasks. But a run of the same name must mean the
    same, and without a common title or run it is another study.
    """
    if attempts < 1:
        raise UserError(f"attempts is {attempts}; allowed: 1 or more")
    folder = Path(folder).absolute()
    study = Study(folder, tuple(runs), title, attempts)
    if folder.is_file() or (
        folder.exists() and not (folder / "study.json").exists() and any(folder.iterdir())
    ):
        raise UserError(f"{folder} is not empty and not a study; name another --out")
    if not (folder / "study.json").exists():
        return study
    existing = read_study(folder)
    known = {run.name: run for run in existing.runs}
    changed = [
        f"{run.name}: {', '.join(_differences(known[run.name], run))}"
        for run in runs
        if run.name in known and _differences(known[run.name], run)
    ]
    if changed:
        shown = "\n  ".join(changed[:3]) + (f"\n  ... ({len(changed)} in all)" * (len(changed) > 3))
        raise UserError(
            f"{folder} holds another study; its runs of the same name differ:\n  {shown}\n"
            "Give the same options to continue it, or another --out"
        )
    if existing.title != title or (not title and not known.keys() & {run.name for run in runs}):
        raise UserError(
            f"{folder} holds another study"
            + (f" ({existing.title})" if existing.title else "")
            + f" of {len(known)} runs, none of them among these; name another --out"
        )
    return study


def read_study(folder: Path) -> Study:
    """The study in a folder.

    Raises:
        UserError: The folder holds no study, or a damaged one.
    """
    folder = Path(folder).absolute()
    path = folder / "study.json"
    if not path.exists():
        raise UserError(f"{folder} is not a study: it has no study.json. `svea sweep` makes one")
    try:
        content = read_json(path, STUDY_BYTES)
        runs = tuple(_planned(entry) for entry in content["runs"])
        methods = [str(run.values.get("method", "")) for run in runs]
        require_trust([name for name in methods if is_import_path(name)], path)
        _check_kinds(content, {"title": str, "attempts": int})
        return Study(folder, runs, content["title"], content["attempts"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError(
            f"{path} cannot be read ({type(error).__name__}: {error}). Move it away and give the "
            "same `svea sweep` command: it writes the file again and keeps the runs"
        ) from error


def _planned(content: dict[str, Any]) -> PlannedRun:
    """A planned run from JSON, which turned tuples into lists."""
    if not isinstance(content, dict):
        raise ValueError(f"a run is {str(content)[:80]!r}")
    content.pop("drop_replay", None)  # an option that there was once
    _check_kinds(content, _KINDS)
    check_episodes(content["episodes"])
    values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in content.items()}
    run = PlannedRun(**values)
    if not run.name or Path(run.name).name != run.name:
        raise ValueError(f"{run.name!r} is not the name of a folder")
    return run


_KINDS: dict[str, type] = {
    "name": str, "values": dict, "decisions": int, "modes": list, "analyses": list,
    "export": str,
}  # fmt: skip


def _check_kinds(content: dict[str, Any], kinds: dict[str, type]) -> None:
    """The values of a JSON object are what the plan calculates with."""
    for name, kind in kinds.items():
        value = content[name]
        good = isinstance(value, kind) and not isinstance(value, bool)
        if good and kind is int:
            good = 1 <= value <= LARGEST
        elif good and kind is list:
            good = all(isinstance(item, str) for item in value)
        if not good:
            raise ValueError(f"{name} is {str(value)[:80]!r}")


def _differences(old: PlannedRun, new: PlannedRun) -> list[str]:
    """Options in which two runs of one name would train differently."""
    names = sorted(old.values.keys() | new.values.keys())
    return [
        f"{name} {old.values.get(name, 'default')} there, {new.values.get(name, 'default')} here"
        for name in names
        if old.values.get(name) != new.values.get(name)
    ]
