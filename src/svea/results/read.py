"""Reading run folders: what is there is used, what is missing or damaged is named.

Runs are often read while they train or after a crash, so a half-written line must not hide the
rest. `runs.layout` says what a run folder holds.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from svea.core import files
from svea.core.errors import StorageError, UserError
from svea.core.words import plural
from svea.results.run import Run, is_plausible
from svea.runs import layout, zoo
from svea.runs.layout import EVALUATIONS, RUN_FILES, is_run
from svea.runs.records import (
    Record,
    is_agent,
    latest,
    older_pictures,
    parse_line,
    parse_record,
    read_records,
)

BEFORE_EVAL = "not yet evaluated by `svea eval`: returns come from the last evaluation in training"


@dataclass(frozen=True)
class Found:
    """The run folders among paths."""

    runs: list[Path]
    copies: dict[Path, Path]
    """The exports that were left out, each with its run, which is among `runs`."""


def find_runs(paths: Iterable[Path]) -> list[Path]:
    """The run folders among paths, each once; `look_for_runs` says which."""
    return look_for_runs(paths).runs


def look_for_runs(paths: Iterable[Path]) -> Found:
    """Find the run folders among paths, each once, however it is spelled.

    A folder that is not a run stands for the runs beneath it, a name of the zoo for its working
    copy. An export whose run is found too is left out, because the same agent is not a second
    seed; one that is named itself stays.
    """
    found: dict[str, Path] = {}  # by their real paths
    named = set()
    for path in map(zoo.working_copy, paths):
        beneath = [] if is_run(path) or not path.is_dir() else _runs_beneath(path)
        if not beneath:
            named.add(os.path.realpath(path))
        for folder in beneath or [path]:
            found.setdefault(os.path.realpath(folder), folder)
    exports = [f for real, f in found.items() if layout.is_export(f) and real not in named]
    runs = {_settings(f): f for f in found.values() if exports and not layout.is_export(f)}
    copies = {f: runs[settings] for f in exports if (settings := _settings(f)) in runs}
    return Found([folder for folder in found.values() if folder not in copies], copies)


def _runs_beneath(path: Path) -> list[Path]:
    """The run folders beneath a folder."""
    folders = sorted({file.parent for name in RUN_FILES for file in path.rglob(name)})

    def is_kept_on_the_way(folder: Path) -> bool:  # in RUN/exports; found if that is named
        above = folder.parent
        return above.name == layout.EXPORTS and above != path and is_run(above.parent)

    return [folder for folder in folders if not is_kept_on_the_way(folder)]


def _settings(folder: Path) -> str:
    """The configuration as an export and its run share it; the folder's name where it has none."""
    config: Record = {}
    with contextlib.suppress(StorageError):  # the one who reads the run says what is wrong
        config = _read_json(folder / layout.CONFIG, layout.CONFIG_BYTES, [])
    shared = {k: v for k, v in config.items() if k not in ("decision", "files")}
    return json.dumps(shared, sort_keys=True) if shared else str(folder)


def read_run(folder: Path) -> Run:
    """Read a run folder.

    Raises:
        UserError: The folder does not exist or holds nothing that a run writes.
        StorageError: A file in it is not a plain one, or larger than any that svea writes.
    """
    folder = Path(folder)
    if not folder.is_dir():
        what = "a file, not a folder" if folder.exists() else "not there"
        hint = zoo.did_you_mean(folder) or "."
        raise UserError(f"no run at {str(folder)!r}: it is {what}. Give the folder of a run{hint}")
    if not is_run(folder):
        raise UserError(
            f"no run at {str(folder)!r}: none of {', '.join(RUN_FILES)} is in it or beneath it. "
            "Give a folder that `svea train` has written."
        )
    warnings: list[str] = []
    config = _read_json(folder / layout.CONFIG, layout.CONFIG_BYTES, warnings)
    exported = layout.is_export(folder)  # it has no log, by design
    metrics = [] if exported else _read_lines(folder / layout.METRICS, warnings)
    recorded = _read_lines(folder / EVALUATIONS, warnings, parse_record)
    for why, older in older_pictures(recorded).items():
        warnings.append(
            f"{EVALUATIONS} has {plural(older, 'episode')} with other pictures than a later "
            f"evaluation of the same mode ({why}); left out"
        )
    episodes = latest(recorded)
    warnings += _implausible_returns(metrics, episodes)
    analyses = {
        path.stem: _rows(
            _read_json(path, layout.ANALYSIS_BYTES, warnings),
            f"{layout.ANALYSIS}/{path.name}",
            warnings,
        )
        for path in sorted((folder / layout.ANALYSIS).glob("*.json"))
    }
    run = Run(folder, config, metrics, episodes, analyses=analyses)
    warnings += _contradictions(run)
    if BEFORE_EVAL in warnings and f"{EVALUATIONS} is missing" in warnings:
        warnings.remove(f"{EVALUATIONS} is missing")  # said already
    return replace(run, warnings=tuple(warnings))


def read_runs(paths: Sequence[Path]) -> tuple[list[Run], list[str]]:
    """Read every run among paths; what cannot be read is named, the rest is returned.

    Raises:
        UserError: No path leads to a run.
    """
    runs, problems = [], []
    found = look_for_runs(paths)
    for folder in found.runs:
        try:
            runs.append(read_run(folder))
        except UserError as error:
            problems.append(str(error))
    if not runs:
        raise UserError("\n".join(problems) or "no run given. Name at least one run folder.")
    return runs, problems + _better_copies(found, runs)


def _better_copies(found: Found, runs: Sequence[Run]) -> list[str]:
    """Name exports that are evaluated but left out for runs that are not."""
    lacking = {run.folder for run in runs if not run.agent_episodes()}
    return [
        f"{export} is left out as an export of {run}, but it is evaluated and its run is not. Name "
        "the export instead of the run, or evaluate the run"
        for export, run in found.copies.items()
        if run in lacking and any(map(is_agent, read_records(export)))
    ]


def _read_json(path: Path, limit: int, warnings: list[str]) -> Record:
    """A JSON object, or an empty one and a warning."""
    try:
        content = files.read_json(path, limit)
    except FileNotFoundError:
        warnings.append(f"{path.name} is missing")
        return {}
    except (OSError, ValueError) as error:
        warnings.append(f"{path.name} cannot be read ({error}); it is left out")
        return {}
    if not isinstance(content, dict):
        warnings.append(f"{path.name} is not a JSON object; it is left out")
        return {}
    return content


def _read_lines(
    path: Path, warnings: list[str], parse: Callable[[bytes], Record | None] = parse_line
) -> list[Record]:
    """The JSON objects of a file, line by line; damaged lines are counted in a warning."""
    records, damaged = [], []
    try:
        for number, line in enumerate(files.read_lines(path, layout.LOG_BYTES), start=1):
            record = parse(line)
            if record is not None:
                records.append(record)
            elif not line.endswith(b"\n"):
                warnings.append(f"{path.name} ends in half a line (still being written?); left out")
            elif line.strip():
                damaged.append(number)
    except FileNotFoundError:
        warnings.append(f"{path.name} is missing")
        return []
    except OSError as error:
        warnings.append(f"{path.name} cannot be read ({error.strerror}); it is left out")
        return []
    if damaged:
        where = f"{plural(len(damaged), 'damaged line')}, the first is line {damaged[0]}"
        warnings.append(f"{path.name} has {where}; left out")
    if not records:
        warnings.append(f"{path.name} holds no record")
    return records


def _rows(content: Record, name: str, warnings: list[str]) -> list[Record]:
    """The rows of an analysis; anything else in their place is a warning."""
    rows = content.get("rows", [])
    if isinstance(rows, list) and all(isinstance(row, dict) for row in rows):
        return rows
    warnings.append(f"{name} has no list of rows; it is left out")
    return []


def _implausible_returns(metrics: list[Record], episodes: list[Record]) -> list[str]:
    """A warning when returns are missing, not finite or beyond belief."""
    bad = sum(not is_plausible(r.get("return")) for r in episodes)
    bad += sum(not is_plausible(r.get("return")) for r in metrics if r.get("kind") == "episode")
    bad += sum(not is_plausible(r.get("return_mean")) for r in metrics if r.get("kind") == "eval")
    left_out = f"{plural(bad, 'return')} not finite or not plausible; left out of every statistic"
    return [left_out] if bad else []


def _contradictions(run: Run) -> list[str]:
    """Warnings about what the run's files say about the run."""
    found = []
    if run.decisions_planned is not None and not run.finished:
        done, planned = run.decisions_done, run.decisions_planned
        found.append(f"unfinished: {done:,} of {planned:,} decisions")
    tasks = {str(r["task"]) for r in run.episodes if r.get("task") is not None}
    if strangers := sorted(tasks - {run.task}):
        found.append(f"eval.jsonl also holds episodes of {', '.join(strangers)}")
    if run.modes and not run.agent_episodes():
        found.append(BEFORE_EVAL)
    saved = [path / layout.MANIFEST for path in layout.checkpoints(run.folder)]
    if not layout.is_export(run.folder) and not any(path.is_file() for path in saved):
        found.append("no checkpoint: `svea eval`, `watch` and `analyze` cannot load its agent")
    return found
