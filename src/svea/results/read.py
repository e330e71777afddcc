"""One training run as its folder tells it: what is there is used, what is missing is named.

Runs are often read while they train or after a crash, so a half-written line must not hide the
rest. `runs.layout` says what a run folder holds.
"""

import contextlib
import itertools
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from svea.config.modes import in_order, name_worlds, trained_on
from svea.config.names import spelled, uses_pictures
from svea.core import files
from svea.core.errors import StorageError, UserError
from svea.core.words import plural
from svea.methods import SAME_RUN
from svea.results.stats import EPISODE
from svea.runs import layout, zoo
from svea.runs.layout import EVALUATIONS, RUN_FILES, is_run
from svea.runs.records import Record, is_agent, latest, older_pictures, parse_record, read_records

LARGEST = 2.0**53
"""Beyond it a return or a count is damage, not a result; whole numbers are exact up to it."""


@dataclass(frozen=True, eq=False)
class Curve:
    """Returns over training: one point per evaluation or episode."""

    decisions: NDArray[np.float64]
    returns: NDArray[np.float64]


def _setting(name: str, default: str, spell: Callable[[str], str] = str) -> cached_property[str]:
    """A name from the configuration; `spell` gives several spellings one name."""
    return cached_property(lambda run: spell(str(run.config.get(name, default))))


def _count(name: str) -> cached_property[int | None]:
    """A number from the configuration, where one is recorded."""

    def read(run: "Run") -> int | None:
        given = run.config.get(name)
        return int(given) if is_number(given) else None

    return cached_property(read)


@dataclass(frozen=True, eq=False)
class Run:
    """One training run as its folder tells it; what scans all records is computed once."""

    folder: Path
    config: Record
    metrics: list[Record]
    episodes: list[Record]
    """The records of `eval.jsonl`: one per evaluation episode."""
    warnings: tuple[str, ...] = ()
    """What was missing or damaged, in words for the reader of a report."""
    analyses: dict[str, list[Record]] = field(default_factory=dict)
    """The rows of each `analysis/<name>.json`, by name."""

    task = _setting("task", "unknown task")
    method = _setting("method", "unknown method", lambda name: SAME_RUN.get(name, name))
    """One name for `drq+aug` and for `drq` with an augmentation."""
    augment = _setting("augment", "none", spelled)
    """The strong augmentation."""
    encoder = _setting("encoder", "cnn")
    base = _setting("base", "sac")
    auxiliary = _setting("auxiliary", "none")
    """The task in addition to the Q-loss."""
    mask = _setting("mask", "none")
    """What covers pixels before the encoder."""
    preset = _setting("preset", "unknown")
    train_mode, train_vary = _setting("train_mode", "train"), _setting("train_vary", "")
    command = _setting("command", "")
    """The command line that made the run; empty where it is not recorded."""
    seed = _count("seed")
    action_repeat = _count("action_repeat")
    """Simulator frames per decision."""
    decisions_planned = _count("decisions")

    @property
    def trained_in(self) -> str:
        """What training showed besides the training world; empty if nothing else."""
        return name_worlds(self.train_mode, self.train_vary)

    def trained_on(self, mode: str) -> bool:
        """Whether training has shown the world of a mode, other than train."""
        with contextlib.suppress(UserError):  # a damaged record
            return trained_on(self.train_mode, self.train_vary, mode)
        return False

    @property
    def name(self) -> str:
        """The folder's name with its parent's, enough to find it again."""
        return "/".join(self.folder.resolve().parts[-2:])

    @property
    def pictures(self) -> Record | None:
        """What overlay mixed in during training: empty if not recorded, None if it was not used."""
        if not uses_pictures(self.augment):
            return None
        given = self.config.get("pictures")
        return given if isinstance(given, dict) else {}

    @cached_property
    def decisions_done(self) -> int:
        """The last decision that any record mentions; an export's configuration does."""
        counts = (r.get("decision") for r in (self.config, *self.metrics, *self.episodes))
        return int(max(filter(is_number, counts), default=0))

    @property
    def finished(self) -> bool:
        """Whether the run reached the number of decisions it was asked for."""
        return self.decisions_planned is not None and self.decisions_done >= self.decisions_planned

    @cached_property
    def seconds(self) -> float | None:
        """Wall-clock seconds of the run, from its last record."""
        return max(filter(is_number, (r.get("seconds") for r in self.metrics)), default=None)

    @cached_property
    def modes(self) -> list[str]:
        """Every mode with a result of the agent, in the order of tables."""
        records = (*self.agent_episodes, *self.evaluations)
        return in_order(str(r["mode"]) for r in records if "mode" in r)

    @cached_property
    def agent_episodes(self) -> list[Record]:
        """Evaluation episodes of the agent, as opposed to the random policy."""
        return [r for r in self.episodes if is_agent(r)]

    @cached_property
    def evaluations(self) -> list[Record]:
        """Evaluations during training."""
        return [r for r in self.metrics if r.get("kind") == "eval"]

    @cached_property
    def provenance(self) -> dict[str, dict[str, Any]]:
        """Where the pictures of each mode came from, as the records of its result tell it."""
        by_decision = sorted(self.agent_episodes, key=_decision)
        records = (*self.evaluations, *self.episodes, *by_decision)
        told = (r for r in records if isinstance(r.get("provenance"), dict) and "mode" in r)
        return {str(r["mode"]): r["provenance"] for r in told}

    def evaluation_curve(self, mode: str | None, key: str = "return_mean") -> Curve:
        """Mean return, or another number, at each evaluation in training (None: of all modes)."""
        return _curve((r for r in self.evaluations if mode in (None, r.get("mode"))), key)

    def episode_curve(self) -> Curve:
        """Return of each training episode."""
        return _curve((r for r in self.metrics if r.get("kind") == "episode"), "return")

    def final_episodes(self, mode: str) -> list[Record]:
        """The agent's episodes in a mode, at the last decision evaluated there.

        Without records in `eval.jsonl`, those of the last evaluation during training.
        """
        records = [r for r in self.agent_episodes if r.get("mode") == mode]
        last = max(map(_decision, records), default=0)
        return [r for r in records if _decision(r) == last] or self._last_evaluation(mode)

    def finals(self, mode: str, unit: str = "return") -> NDArray[np.float64]:
        """What a score is the mean of: final returns, or 1 for each success and 0 for a failure."""
        return np.array([value for value, _ in values(self.final_episodes(mode), unit)])

    def final_by_world(self, mode: str, unit: str = "return") -> dict[str, list[float]]:
        """The values of `finals` by the world they are from."""
        return by_world(self.final_episodes(mode), unit)

    def worlds_seen(self, mode: str) -> int:
        """How many of a mode's worlds the final result is from; 0 where records name none."""
        worlds = (r.get("world") for r in self.final_episodes(mode))
        return len({str(world) for world in worlds if world is not None})

    def worlds_of(self, mode: str) -> int:
        """How many worlds the benchmark's mode has, missing clips included; 0 where it has one."""
        told = self.provenance.get(mode, {})
        counts = (told.get(name) for name in ("of", "worlds"))
        return next((count for count in counts if type(count) is int and count > 0), 0)

    def random_returns(self, mode: str) -> NDArray[np.float64]:
        """Episode returns of the random policy in a mode, as evaluated with this run."""
        records = (r for r in self.episodes if r.get("policy") == "random")
        return np.array([value for value, r in values(records) if r.get("mode") == mode])

    def media(self, suffix: str) -> dict[str, Path]:
        """Files `media/<mode><suffix>` by mode; `train` first."""
        found = (self.folder / layout.MEDIA).glob(f"*{suffix}")
        return {f.stem: f for f in sorted(found, key=lambda f: (f.stem != "train", f))}

    def _last_evaluation(self, mode: str) -> list[Record]:
        """The episodes of the last evaluation during training, as records of `eval.jsonl`."""
        last = next((r for r in reversed(self.evaluations) if r.get("mode") == mode), {})
        lists = (last.get(name) for name in ("returns", "worlds"))
        returns, worlds = (one if isinstance(one, list) else [] for one in lists)
        pairs = itertools.zip_longest(returns or [last.get("return_mean")], worlds)
        return [{"return": one, "world": at, "seed": k} for k, (one, at) in enumerate(pairs)]


def by_world(records: Iterable[Record], unit: str = "return") -> dict[str, list[float]]:
    """Returns, or successes, by world; without one, by the seed, which all agents share."""
    found: dict[str, list[float]] = {}
    for value, record in values(records, unit):
        name = record.get("world")
        world = f"{EPISODE}{record.get('seed')}" if name is None else str(name)
        found.setdefault(world, []).append(value)
    return found


def values(records: Iterable[Record], unit: str = "return") -> Iterator[tuple[float, Record]]:
    """The plausible returns, or the successes, of episodes, each with its record."""
    for record in records:
        value = record.get(unit)
        if isinstance(value, bool) if unit == "success" else is_number(value):
            yield float(record[unit]), record


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether a JSON value can be a return or a count (true, nan and 1e300 cannot)."""
    return type(value) in (int, float) and -LARGEST <= value <= LARGEST  # type: ignore[operator]


def _decision(record: Record) -> float:
    given = record.get("decision")
    return given if is_number(given) else 0


def _curve(records: Iterable[Record], key: str) -> Curve:
    """Points (decision, value) in order of decisions; the last record of a decision counts."""
    points = {
        float(r["decision"]): float(r[key])
        for r in records
        if is_number(r.get("decision")) and is_number(r.get(key))
    }
    ordered = sorted(points)
    return Curve(np.array(ordered), np.array([points[x] for x in ordered]))


# Folders ------------------------------------------------------------------------------------------

BEFORE_EVAL = "not yet evaluated by `svea eval`: returns come from the last evaluation in training"


def find_runs(paths: Iterable[Path]) -> list[Path]:
    """The run folders among paths, each once; `look_for_runs` says which."""
    return look_for_runs(paths)[0]


def look_for_runs(paths: Iterable[Path]) -> tuple[list[Path], dict[Path, Path]]:
    """The run folders among paths, and the exports that are left out, each with its run.

    A folder that is not a run stands for the runs beneath it, a name of the zoo for its working
    copy. An export whose run is found too is left out, because the same agent is not a second
    seed; one that is named itself stays. No run is found twice, however it is spelled.
    """
    found: dict[str, Path] = {}  # by their real paths
    named = set()
    for path in map(zoo.working_copy, paths):
        files_beneath = (path.rglob(name) for name in (() if is_run(path) else RUN_FILES))
        beneath = sorted({file.parent for file in itertools.chain.from_iterable(files_beneath)})
        if not beneath:
            named.add(os.path.realpath(path))
        for folder in beneath or [path]:
            found.setdefault(os.path.realpath(folder), folder)
    exports = [f for real, f in found.items() if layout.is_export(f) and real not in named]
    runs = {_settings(f): f for f in found.values() if exports and not layout.is_export(f)}
    copies = {f: runs[settings] for f in exports if (settings := _settings(f)) in runs}
    return [folder for folder in found.values() if folder not in copies], copies


def _settings(folder: Path) -> str:
    """The configuration as an export and its run share it; the folder's name where it has none."""
    config: Record = {}
    with contextlib.suppress(StorageError):  # the one who reads the run says what is wrong
        config = _read_json(folder / layout.CONFIG, layout.CONFIG_BYTES, [])
    shared = {k: v for k, v in config.items() if k not in ("decision", "files")}
    return json.dumps(shared, sort_keys=True) if shared else str(folder)


def read_run(folder: Path) -> Run:
    """Read a run folder; an error if it is none, or its configuration cannot be read."""
    folder = Path(folder)
    if not folder.is_dir():
        what = "a file, not a folder" if folder.exists() else "not there"
        raise UserError(
            f"no run at {str(folder)!r}: it is {what}. Give the folder of a run, or zoo:NAME "
            "(`svea zoo` lists them)."
        )
    warnings: list[str] = []
    config = _read_json(folder / layout.CONFIG, layout.CONFIG_BYTES, warnings)
    if warnings:  # it is written whole, before anything else
        raise UserError(
            f"no run at {str(folder)!r}, nor beneath it: {warnings[0]}. Give a folder that `svea "
            "train` has written, or restore the file from a copy"
        )
    exported = layout.is_export(folder)  # it has no log, by design
    metrics = [] if exported else _read_lines(folder / layout.METRICS, warnings)
    recorded = _read_lines(folder / EVALUATIONS, warnings, parse_record)
    for why, older in older_pictures(recorded).items():
        warnings.append(
            f"{EVALUATIONS} has {plural(older, 'episode')} with other pictures than a later "
            f"evaluation of the same mode ({why}); left out"
        )
    paths = sorted((folder / layout.ANALYSIS).glob("*.json"))
    analyses = {path.stem: _read_rows(path, warnings) for path in paths}
    run = Run(folder, config, metrics, latest(recorded), analyses=analyses)
    warnings += _contradictions(run)
    if BEFORE_EVAL in warnings:  # says it already
        warnings = [text for text in warnings if text != f"{EVALUATIONS} is missing"]
    return replace(run, warnings=tuple(warnings))


def read_runs(paths: Sequence[Path]) -> tuple[list[Run], list[str]]:
    """Every run among paths, of which there must be one, and what cannot be read."""
    runs, problems = [], []
    folders, copies = look_for_runs(paths)
    for folder in folders:
        try:
            runs.append(read_run(folder))
        except UserError as error:
            problems.append(str(error))
    if not runs:
        raise UserError("\n".join(problems) or "no run given. Name at least one run folder.")
    lacking = {run.folder for run in runs if not run.agent_episodes}
    problems += [
        f"{export} is left out as an export of {run}, but it is evaluated and its run is not. Name "
        "the export instead of the run, or evaluate the run"
        for export, run in copies.items()
        if run in lacking and any(map(is_agent, read_records(export)))
    ]
    return runs, problems


def _read_json(path: Path, limit: int, warnings: list[str]) -> Record:
    """A JSON object, or an empty one and a warning."""
    try:
        content = files.read_json(path, limit)
        if isinstance(content, dict):
            return content
        why = "cannot be read (not a JSON object); it is left out"
    except FileNotFoundError:
        why = "is missing"
    except (OSError, ValueError) as error:
        why = f"cannot be read ({error}); it is left out"
    warnings.append(f"{path.name} {why}")
    return {}


def _read_rows(path: Path, warnings: list[str]) -> list[Record]:
    """The rows of an analysis; anything else in their place is a warning."""
    rows = _read_json(path, layout.ANALYSIS_BYTES, warnings).get("rows", [])
    if isinstance(rows, list) and all(isinstance(row, dict) for row in rows):
        return rows
    warnings.append(f"{layout.ANALYSIS}/{path.name} has no list of rows; it is left out")
    return []


def _read_lines(
    path: Path, warnings: list[str], parse: Callable[[bytes], Record | None] = files.parse_line
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
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        why = "is missing" if missing else f"cannot be read ({error.strerror}); it is left out"
        warnings.append(f"{path.name} {why}")
        return []
    if damaged:
        where = f"{plural(len(damaged), 'damaged line')}, the first is line {damaged[0]}"
        warnings.append(f"{path.name} has {where}; left out")
    if not records:
        warnings.append(f"{path.name} holds no record")
    return records


def _contradictions(run: Run) -> Iterator[str]:
    """Warnings about what the run's files say about the run."""
    returns = [r.get("return") for r in run.episodes]
    for kind, key in (("episode", "return"), ("eval", "return_mean")):
        returns += [r.get(key) for r in run.metrics if r.get("kind") == kind]
    if bad := sum(not is_number(value) for value in returns):
        yield f"{plural(bad, 'return')} not finite or not plausible; left out of every statistic"
    if run.decisions_planned is not None and not run.finished:
        yield f"unfinished: {run.decisions_done:,} of {run.decisions_planned:,} decisions"
    tasks = {str(r["task"]) for r in run.episodes if r.get("task") is not None}
    if strangers := sorted(tasks - {run.task}):
        yield f"eval.jsonl also holds episodes of {', '.join(strangers)}"
    if run.modes and not run.agent_episodes:
        yield BEFORE_EVAL
    saved = [path / layout.MANIFEST for path in layout.checkpoints(run.folder)]
    if not layout.is_export(run.folder) and not any(path.is_file() for path in saved):
        yield "no checkpoint: `svea eval`, `watch` and `analyze` cannot load its agent"
