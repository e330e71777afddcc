"""One training run as its folder tells it: what is there is used, what is missing is named.

Runs are often read while they train or after a crash, so a half-written line must not hide the
rest. `runs.layout` says what a run folder holds.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from svea.config.modes import in_order
from svea.config.names import spelled, uses_pictures
from svea.core import files
from svea.core.errors import StorageError, UserError
from svea.core.words import plural
from svea.methods import SAME_RUN
from svea.results.stats import EPISODE
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

LARGEST_PLAUSIBLE = 1e9
"""Beyond it a return or a count of decisions is damage, not a result."""


@dataclass(frozen=True, eq=False)
class Curve:
    """Returns over training: one point per evaluation or episode."""

    decisions: NDArray[np.float64]
    returns: NDArray[np.float64]


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

    @property
    def name(self) -> str:
        """The folder's name with its parent's, enough to find it again."""
        return "/".join(self.folder.resolve().parts[-2:])

    @property
    def task(self) -> str:
        """The task, from the configuration or else from the evaluation records."""
        return self._setting("task", "unknown task")

    @property
    def method(self) -> str:
        """The method's name: one for `drq+aug` and for `drq` with an augmentation."""
        given = self._setting("method", "unknown method")
        return SAME_RUN.get(given, given)

    @property
    def augment(self) -> str:
        """The strong augmentation, `none` without one."""
        return spelled(self._setting("augment", "none"))

    @property
    def encoder(self) -> str:
        """The kind of encoder: `cnn` (also where the configuration has none) or `vit`."""
        return self._setting("encoder", "cnn")

    @property
    def base(self) -> str:
        """The base algorithm: `sac` (also where the configuration has none), `ddpg` or `dqn`."""
        return self._setting("base", "sac")

    @property
    def auxiliary(self) -> str:
        """The task in addition to the Q-loss; `none` also where the configuration does not say."""
        return self._setting("auxiliary", "none")

    @property
    def mask(self) -> str:
        """What covers pixels before the encoder; `none` where the configuration does not say."""
        return self._setting("mask", "none")

    @property
    def pictures(self) -> Record | None:
        """The pictures that overlay mixed in during training; None where it was not used.

        An empty record: the run does not say which.
        """
        if not uses_pictures(self.augment):
            return None
        given = self.config.get("pictures")
        if given is None:
            given = next((r["pictures"] for r in self.episodes if "pictures" in r), None)
        return given if isinstance(given, dict) else {}

    @property
    def preset(self) -> str:
        """The named preset the run started from."""
        return self._setting("preset", "unknown")

    @property
    def seed(self) -> int | None:
        """The training seed, where one is recorded."""
        given = self.config.get("seed")
        if given is None:
            given = next((r["run_seed"] for r in self.episodes if "run_seed" in r), None)
        return int(given) if is_number(given) else None

    @property
    def action_repeat(self) -> int | None:
        """Simulator frames per decision."""
        given = self.config.get("action_repeat")
        if is_number(given) and given >= 1:
            return int(given)
        pairs = ((r.get("decision"), r.get("frame")) for r in reversed(self.metrics))
        ratios = (f / d for d, f in pairs if is_number(d) and is_number(f) and d > 0)
        return next((round(ratio) for ratio in ratios if ratio >= 1), None)

    @property
    def decisions_planned(self) -> int | None:
        """How many decisions the configuration asks for."""
        given = self.config.get("decisions")
        return int(given) if is_number(given) else None

    @cached_property
    def decisions_done(self) -> int:
        """The last decision that any record mentions; an export's configuration does."""
        records = (self.config, *self.metrics, *self.episodes)
        counts = (r.get("decision") for r in records)
        return int(max((count for count in counts if is_plausible(count)), default=0))

    @property
    def finished(self) -> bool:
        """Whether the run reached the number of decisions it was asked for."""
        return self.decisions_planned is not None and self.decisions_done >= self.decisions_planned

    @cached_property
    def seconds(self) -> float | None:
        """Wall-clock seconds of the run, from its last record."""
        recorded = (_number(r.get("seconds")) for r in self.metrics)
        return max((s for s in recorded if s is not None), default=None)

    @property
    def command(self) -> str | None:
        """The command line that made the run."""
        given = self.config.get("command")
        return str(given) if given else None

    @cached_property
    def modes(self) -> list[str]:
        """Every mode with a result of the agent, in the order of tables."""
        seen = [str(r["mode"]) for r in self.agent_episodes() if "mode" in r]
        seen += [str(r["mode"]) for r in self._evaluations() if "mode" in r]
        return in_order(seen)

    def evaluation_curve(self, mode: str) -> Curve:
        """Mean return at each evaluation during training."""
        return self._evaluation_curves.get(mode, Curve(np.empty(0), np.empty(0)))

    def evaluation_hours(self, mode: str) -> Curve:
        """Hours of wall time, in place of returns, at each evaluation during training."""
        records = [r for r in self._evaluations() if r.get("mode") == mode]
        curve = _curve(records, "seconds")
        return Curve(curve.decisions, curve.returns / 3600)

    @cached_property
    def _evaluation_curves(self) -> dict[str, Curve]:
        """The evaluation curve of each mode: asked for many times, and slow over long records."""
        by_mode: dict[str, list[Record]] = {}
        for record in self._evaluations():
            by_mode.setdefault(str(record.get("mode")), []).append(record)
        return {mode: _curve(records, "return_mean") for mode, records in by_mode.items()}

    def variance_curve(self) -> Curve:
        """Variance of the Q-target at each evaluation during training, where it was logged."""
        return _curve(self._evaluations(), "q_target_variance")

    def episode_curve(self) -> Curve:
        """Return of each training episode."""
        return _curve([r for r in self.metrics if r.get("kind") == "episode"], "return")

    def final_returns(self, mode: str) -> NDArray[np.float64]:
        """The agent's episode returns in a mode, at the last decision evaluated there.

        Without records in `eval.jsonl`, those of the last evaluation during training.
        """
        return _returns(self._last_episodes(mode) or self._last_evaluation(mode))

    def final_successes(self, mode: str) -> NDArray[np.float64]:
        """1 for each success and 0 for each failure of the agent, at the last decision evaluated.

        Empty where the task knows no success.
        """
        outcomes = (r.get("success") for r in self._last_episodes(mode))
        return np.array([float(one) for one in outcomes if isinstance(one, bool)])

    def finals(self, mode: str, unit: str = "return") -> NDArray[np.float64]:
        """`final_returns`, or `final_successes`: what a score is the mean of."""
        return self.final_returns(mode) if unit == "return" else self.final_successes(mode)

    def final_by_world(self, mode: str, unit: str = "return") -> dict[str, list[float]]:
        """The values of `finals` by the world they are from."""
        return by_world(self._last_episodes(mode) or self._last_evaluation(mode), unit)

    def worlds_seen(self, mode: str) -> int:
        """How many of a mode's worlds the final result is from; 0 where records name none."""
        records = self._last_episodes(mode) or self._last_evaluation(mode)
        return len({str(r["world"]) for r in records if r.get("world") is not None})

    def worlds_of(self, mode: str) -> int:
        """How many worlds the benchmark's mode has, missing clips included; 0 where it has one."""
        told = self.provenance().get(mode, {})
        counts = (told.get(name) for name in ("of", "worlds"))
        return next((count for count in counts if type(count) is int and count > 0), 0)

    def drawn_otherwise(self, mode: str) -> list[Record]:
        """Episodes of the final result that another renderer drew than their provenance says."""
        return [r for r in self._last_episodes(mode) if isinstance(r.get("drawn_by"), str)]

    def random_returns(self, mode: str) -> NDArray[np.float64]:
        """Episode returns of the random policy in a mode, as evaluated with this run."""
        records = (r for r in self.episodes if r.get("policy") == "random")
        return _returns(r for r in records if r.get("mode") == mode)

    def provenance(self) -> dict[str, dict[str, Any]]:
        """Where the pictures of each mode came from, as the records of its result tell it."""
        return self._provenance

    @cached_property
    def _provenance(self) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        by_decision = sorted(self.agent_episodes(), key=lambda r: _number(r.get("decision")) or 0)
        for record in (*self._evaluations(), *self.episodes, *by_decision):
            if isinstance(record.get("provenance"), dict) and "mode" in record:
                found[str(record["mode"])] = record["provenance"]
        return found

    def media(self, suffix: str) -> dict[str, Path]:
        """Files `media/<mode><suffix>` by mode; `train` first."""
        files = sorted((self.folder / layout.MEDIA).glob(f"*{suffix}"))
        return {f.stem: f for f in sorted(files, key=lambda f: f.stem != "train")}

    def _setting(self, key: str, default: str) -> str:
        """A name from the configuration, else from the records."""
        given = self.config.get(key)
        if given is None:
            given = next((r[key] for r in self.episodes if r.get(key) is not None), None)
        return default if given is None else str(given)

    def _last_episodes(self, mode: str) -> list[Record]:
        """The agent's evaluation episodes in a mode, at the last decision evaluated there."""
        records = [r for r in self.agent_episodes() if r.get("mode") == mode]
        last = max((_number(r.get("decision")) or 0 for r in records), default=0)
        return [r for r in records if (_number(r.get("decision")) or 0) == last]

    def _last_evaluation(self, mode: str) -> list[Record]:
        """The episodes of the last evaluation during training, as records of `eval.jsonl`."""
        last = next((r for r in reversed(self._evaluations()) if r.get("mode") == mode), {})
        listed, worlds = last.get("returns"), last.get("worlds")
        values = listed if isinstance(listed, list) and listed else [last.get("return_mean")]
        if not isinstance(worlds, list) or len(worlds) != len(values):
            worlds = [None] * len(values)
        shown = enumerate(zip(values, worlds, strict=True))
        return [{"return": value, "world": world, "seed": k} for k, (value, world) in shown]

    def agent_episodes(self) -> list[Record]:
        """Evaluation episodes of the agent, as opposed to the random policy."""
        return [r for r in self.episodes if is_agent(r)]

    def _evaluations(self) -> list[Record]:
        """Evaluations during training."""
        return [r for r in self.metrics if r.get("kind") == "eval"]


def by_world(records: Iterable[Record], unit: str = "return") -> dict[str, list[float]]:
    """Returns, or successes, of episodes by the world they are from.

    An episode without a world stands under its seed: it is the same for every agent.
    """
    found: dict[str, list[float]] = {}
    is_value = is_plausible if unit == "return" else lambda value: isinstance(value, bool)
    for record in records:
        if is_value(record.get(unit)):
            name = record.get("world")
            world = f"{EPISODE}{record.get('seed')}" if name is None else str(name)
            found.setdefault(world, []).append(float(record[unit]))
    return found


def _curve(records: list[Record], key: str) -> Curve:
    """Points (decision, value) in order of decisions; the last record of a decision counts."""
    points = {
        float(r["decision"]): float(r[key])
        for r in records
        if is_plausible(r.get("decision")) and is_plausible(r.get(key))
    }
    ordered = sorted(points)
    return Curve(np.array(ordered), np.array([points[x] for x in ordered]))


def _returns(records: Iterable[Record]) -> NDArray[np.float64]:
    """The plausible returns of records."""
    return np.array([r["return"] for r in records if is_plausible(r.get("return"))], dtype=float)


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether a JSON value is a finite number (true and false are not)."""
    return isinstance(value, int | float) and not isinstance(value, bool) and _finite(value)


def _finite(value: int | float) -> bool:
    """Whether a number fits a double and is neither nan nor infinite."""
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer with hundreds of digits
        return False


def _number(value: object) -> float | None:
    """A finite number, or None."""
    return float(value) if is_number(value) else None


def is_plausible(value: object) -> TypeGuard[int | float]:
    """Whether a JSON value can be a return or a count of decisions: asked of every record."""
    return type(value) in (int, float) and -LARGEST_PLAUSIBLE <= value <= LARGEST_PLAUSIBLE  # type: ignore[operator]


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
