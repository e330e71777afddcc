"""Reading run folders: what is there is used, what is missing or damaged is named.

A run folder holds `config.json`, `metrics.jsonl` (one line per event of training), `eval.jsonl`
(one line per evaluation episode), `media/<mode>.mp4|png` and perhaps `summary.json` and what
`svea analyze` wrote: `analysis/<name>.json` and pictures. Runs are often read while they train or
after a crash, so a half-written line must not hide the rest.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from svea.errors import UserError
from svea.runs import layout
from svea.runs.layout import EVALUATIONS, RUN_FILES, is_run
from svea.runs.records import Record, is_agent, latest, parse_line

BEFORE_EVAL = "not yet evaluated by `svea eval`: returns come from the last evaluation in training"

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
    summary: Record = field(default_factory=dict)
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
        """The method's name."""
        return self._setting("method", "unknown method")

    @property
    def augment(self) -> str:
        """The strong augmentation, `none` without one."""
        return self._setting("augment", "none")

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
        """The task beside the Q-loss; `none` also where the configuration does not say."""
        return self._setting("auxiliary", "none")

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
        return int(given) if _is_number(given) else None

    @property
    def action_repeat(self) -> int | None:
        """Simulator frames per decision."""
        given = self.config.get("action_repeat")
        if _is_number(given) and given >= 1:
            return int(given)
        pairs = ((r.get("decision"), r.get("frame")) for r in reversed(self.metrics))
        ratios = (f / d for d, f in pairs if _is_number(d) and _is_number(f) and d > 0)
        return next((round(ratio) for ratio in ratios if ratio >= 1), None)

    @property
    def decisions_planned(self) -> int | None:
        """How many decisions the configuration asks for."""
        given = self.config.get("decisions")
        return int(given) if _is_number(given) else None

    @cached_property
    def decisions_done(self) -> int:
        """The last decision that any record mentions; an export's configuration does."""
        records = (self.config, *self.metrics, *self.episodes)
        counts = (r.get("decision") for r in records)
        return int(max((count for count in counts if _is_plausible(count)), default=0))

    @property
    def finished(self) -> bool:
        """Whether the run reached the number of decisions it was asked for."""
        return self.decisions_planned is not None and self.decisions_done >= self.decisions_planned

    @cached_property
    def seconds(self) -> float | None:
        """Wall-clock seconds of the run, from its summary or its last record."""
        if _is_number(self.summary.get("seconds")):
            return float(self.summary["seconds"])
        recorded = (_number(r.get("seconds")) for r in self.metrics)
        return max((s for s in recorded if s is not None), default=None)

    @property
    def command(self) -> str | None:
        """The command line that made the run."""
        given = self.config.get("command")
        if isinstance(given, list):
            return shlex.join(str(word) for word in given)
        return str(given) if given else None

    @cached_property
    def modes(self) -> list[str]:
        """Every mode with a result of the agent: `train` first, then in order of appearance."""
        seen = [str(r["mode"]) for r in self._agent_episodes() if "mode" in r]
        seen += [str(r["mode"]) for r in self._evaluations() if "mode" in r]
        return sorted(dict.fromkeys(seen), key=lambda mode: mode != "train")

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
        if records := self._last_episodes(mode):
            return _returns(records)
        evaluations = [r for r in self._evaluations() if r.get("mode") == mode]
        if not evaluations:
            return np.empty(0)
        last_one = evaluations[-1]
        listed = last_one.get("returns")
        values = listed if isinstance(listed, list) and listed else [last_one.get("return_mean")]
        return np.array([v for v in values if _is_plausible(v)], dtype=np.float64)

    def final_successes(self, mode: str) -> NDArray[np.float64]:
        """1 for each success and 0 for each failure of the agent, at the last decision evaluated.

        Empty where the task knows no success.
        """
        outcomes = (r.get("success") for r in self._last_episodes(mode))
        return np.array([float(one) for one in outcomes if isinstance(one, bool)])

    def random_returns(self, mode: str) -> NDArray[np.float64]:
        """Episode returns of the random policy in a mode, as evaluated beside this run."""
        records = (r for r in self.episodes if r.get("policy") == "random")
        return _returns(r for r in records if r.get("mode") == mode)

    def provenance(self) -> dict[str, dict[str, Any]]:
        """Where the pictures of each mode came from, as the records tell it."""
        found: dict[str, dict[str, Any]] = {}
        for record in (*self._evaluations(), *self.episodes):
            if isinstance(record.get("provenance"), dict) and "mode" in record:
                found[str(record["mode"])] = record["provenance"]
        return found

    def media(self, suffix: str) -> dict[str, Path]:
        """Files `media/<mode><suffix>` by mode; `train` first."""
        files = sorted((self.folder / layout.MEDIA).glob(f"*{suffix}"))
        return {f.stem: f for f in sorted(files, key=lambda f: f.stem != "train")}

    def _setting(self, key: str, default: str) -> str:
        """A name from the configuration (a string or a table with one), else from the records."""
        given = self.config.get(key)
        if isinstance(given, dict):
            given = given.get("name", given.get("kind"))
        if given is None:
            given = next((r[key] for r in self.episodes if r.get(key) is not None), None)
        return default if given is None else str(given)

    def _last_episodes(self, mode: str) -> list[Record]:
        """The agent's evaluation episodes in a mode, at the last decision evaluated there."""
        records = [r for r in self._agent_episodes() if r.get("mode") == mode]
        last = max((_number(r.get("decision")) or 0 for r in records), default=0)
        return [r for r in records if (_number(r.get("decision")) or 0) == last]

    def _agent_episodes(self) -> list[Record]:
        """Evaluation episodes of the agent, as opposed to the random policy."""
        return [r for r in self.episodes if is_agent(r)]

    def _evaluations(self) -> list[Record]:
        """Evaluations during training."""
        return [r for r in self.metrics if r.get("kind") == "eval"]


def find_runs(paths: Iterable[Path]) -> list[Path]:
    """The run folders among paths; a folder that is no run stands for the runs beneath it."""
    found: dict[Path, None] = {}
    for path in map(Path, paths):
        if is_run(path) or not path.is_dir():
            found[path] = None
            continue
        beneath = sorted({f.parent for name in RUN_FILES for f in path.rglob(name)})
        found.update(dict.fromkeys(beneath or [path]))
    return list(found)


def read_run(folder: Path) -> Run:
    """Read a run folder.

    Raises:
        UserError: The folder does not exist or holds nothing that a run writes.
    """
    folder = Path(folder)
    if not folder.is_dir():
        what = "a file, not a folder" if folder.exists() else "not there"
        raise UserError(f"no run at {str(folder)!r}: it is {what}. Give the folder of a run.")
    if not is_run(folder):
        raise UserError(
            f"no run at {str(folder)!r}: none of {', '.join(RUN_FILES)} is in it or beneath it. "
            "Give a folder that `svea train` has written."
        )
    warnings: list[str] = []
    config = _read_json(folder / layout.CONFIG, warnings)
    exported = layout.is_export(folder)  # it has no log, by design
    metrics = [] if exported else _read_lines(folder / layout.METRICS, warnings)
    episodes = latest(_read_lines(folder / EVALUATIONS, warnings))
    summary = {}
    if (folder / "summary.json").exists():
        summary = _read_json(folder / "summary.json", warnings)
    warnings += _implausible_returns(metrics, episodes)
    analyses = {
        path.stem: _rows(_read_json(path, warnings), f"{layout.ANALYSIS}/{path.name}", warnings)
        for path in sorted((folder / layout.ANALYSIS).glob("*.json"))
    }
    run = Run(folder, config, metrics, episodes, summary, analyses=analyses)
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
    for folder in find_runs(paths):
        try:
            runs.append(read_run(folder))
        except UserError as error:
            problems.append(str(error))
    if not runs:
        raise UserError("\n".join(problems) or "no run given. Name at least one run folder.")
    return runs, problems


def _read_json(path: Path, warnings: list[str]) -> Record:
    """A JSON object, or an empty one and a warning."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        warnings.append(f"{path.name} is missing")
        return {}
    except (OSError, ValueError, RecursionError) as error:
        warnings.append(f"{path.name} cannot be read ({type(error).__name__}); it is left out")
        return {}
    if not isinstance(content, dict):
        warnings.append(f"{path.name} holds no JSON object; it is left out")
        return {}
    return content


def _read_lines(path: Path, warnings: list[str]) -> list[Record]:
    """The JSON objects of a file, line by line; damaged lines are counted in a warning."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        warnings.append(f"{path.name} is missing")
        return []
    except OSError as error:
        warnings.append(f"{path.name} cannot be read ({type(error).__name__}); it is left out")
        return []
    records, damaged = [], []
    lines = text.split("\n")  # the last one is empty when the file ends in a newline
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        record = parse_line(line)
        if record is not None:
            records.append(record)
        elif number == len(lines):
            warnings.append(f"{path.name} ends in half a line (still being written?); left out")
        else:
            damaged.append(number)
    if damaged:
        where = f"{len(damaged)} damaged line(s), the first is line {damaged[0]}"
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
    bad = sum(not _is_plausible(r.get("return")) for r in episodes)
    bad += sum(not _is_plausible(r.get("return")) for r in metrics if r.get("kind") == "episode")
    bad += sum(not _is_plausible(r.get("return_mean")) for r in metrics if r.get("kind") == "eval")
    return (
        [f"{bad} return(s) are not finite or not plausible; left out of every statistic"]
        if bad
        else []
    )


def _contradictions(run: Run) -> list[str]:
    """Warnings about what the run's files say about the run."""
    found = []
    if run.decisions_planned is not None and not run.finished:
        done, planned = run.decisions_done, run.decisions_planned
        found.append(f"unfinished: {done:,} of {planned:,} decisions")
    tasks = {str(r["task"]) for r in run.episodes if r.get("task") is not None}
    if strangers := sorted(tasks - {run.task}):
        found.append(f"eval.jsonl also holds episodes of {', '.join(strangers)}")
    if run.modes and not run._agent_episodes():
        found.append(BEFORE_EVAL)
    saved = [path / layout.MANIFEST for path in layout.checkpoints(run.folder)]
    if not layout.is_export(run.folder) and not any(path.is_file() for path in saved):
        found.append("no checkpoint: `svea eval`, `watch` and `analyze` cannot load its agent")
    return found


def _curve(records: list[Record], key: str) -> Curve:
    """Points (decision, value) in order of decisions; the last record of a decision counts."""
    points = {
        float(r["decision"]): float(r[key])
        for r in records
        if _is_plausible(r.get("decision")) and _is_plausible(r.get(key))
    }
    ordered = sorted(points)
    return Curve(np.array(ordered), np.array([points[x] for x in ordered]))


def _returns(records: Iterable[Record]) -> NDArray[np.float64]:
    """The plausible returns of records."""
    return np.array([r["return"] for r in records if _is_plausible(r.get("return"))], dtype=float)


def _is_number(value: object) -> TypeGuard[int | float]:
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
    return float(value) if _is_number(value) else None


def _is_plausible(value: object) -> TypeGuard[int | float]:
    """Whether a JSON value can be a return or a count of decisions: asked of every record."""
    return type(value) in (int, float) and -LARGEST_PLAUSIBLE <= value <= LARGEST_PLAUSIBLE  # type: ignore[operator]
