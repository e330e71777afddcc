"""Studies: many runs planned at once, whose whole state is what lies in their folders.

A study is a folder on storage that every machine sees:

    study.json            what was planned: the runs, each with the options of `svea train`
    runs/NAME/            the run folders, as `svea train` writes them
    journal/NAME.jsonl    the attempts at a run; locked as long as somebody works at it
    journal/NAME.log      what those attempts printed
    cancel                exists after `svea sweep cancel`: everybody saves and stops

Nothing else is remembered anywhere: an engine, its driver and its machines may all be lost, and the
same command goes on from these folders.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import os
import re
import runpy
import tomllib
import typing
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from svea import files
from svea.errors import UserError, unknown_name
from svea.runs import layout
from svea.runs.lock import is_locked
from svea.runs.records import episode_key, is_agent, parse_line, read_records

if TYPE_CHECKING:  # torch and the simulator are imported by who plans, not by who looks or waits
    from svea.config import Config

FORMAT = 1
ATTEMPTS = 3
"""Failing attempts that a run gets before it counts as failed."""
LARGEST_SEED = 10**9
TAIL_BYTES = 16_384  # of metrics.jsonl: enough for the last evaluation in two modes
STATES = ("queued", "running", "done", "failed")

Values = dict[str, Any]


@dataclass(frozen=True)
class Grid:
    """Every combination of some tasks, methods, augmentations and seeds.

    Attributes:
        tasks: names of tasks.
        methods: names of methods.
        augments: strong augmentations; none given: each method's own default.
        seeds: training seeds.
        set: further options of `svea train`, by their names there. They are part of the names of
            this grid's runs, so that several grids of one study can differ in them.
    """

    tasks: Sequence[str]
    methods: Sequence[str] = ("svea",)
    augments: Sequence[str] = ()
    seeds: Sequence[int] | str = (0,)
    set: Values = field(default_factory=dict)

    def points(self) -> Iterator[Values]:
        """The options of each run."""
        for task, method, augment, seed in itertools.product(
            _names("tasks", self.tasks),
            _names("methods", self.methods),
            _names("augments", self.augments) or (None,),
            parse_seeds(self.seeds),
        ):
            values = {"task": task, "method": method, "seed": seed} | flatten(self.set)
            yield values if augment is None else values | {"augment": augment}


@dataclass(frozen=True)
class PlannedRun:
    """One run of a study: enough to start it, and to see in its folder how far it is.

    Attributes:
        name: of its folder.
        values: the options of `svea train` that were given, `task` among them.
        decisions: how long it shall be.
        modes: to be evaluated in after training, besides what training itself evaluates.
        episodes: of that evaluation, per mode.
        analyses: names of `svea analyze` to be made after training.
        drop_replay: remove the replay when all is done; the run can then not be extended.
    """

    name: str
    values: Values
    decisions: int
    modes: tuple[str, ...] = ()
    episodes: int = 30
    analyses: tuple[str, ...] = ()
    drop_replay: bool = False

    @property
    def config(self) -> Config:
        """The configuration that `svea train` will resolve."""
        return resolve(self.values)

    def train_command(self, folder: Path) -> list[str]:
        """The arguments of `svea` that train, or go on training, in a folder."""
        values = dict(self.values)
        return ["train", values.pop("task"), *as_flags(values), "--out", str(folder)]


@dataclass(frozen=True)
class Progress:
    """How far a run is, as its folder tells."""

    decision: int = 0
    seconds: float | None = None
    returns: dict[str, float] = field(default_factory=dict)
    """Mean return of the last evaluation during training, by mode."""
    trained: bool = False
    missing_modes: tuple[str, ...] = ()
    missing_analyses: tuple[str, ...] = ()

    @property
    def done(self) -> bool:
        """Whether nothing is left to do."""
        return self.trained and not self.missing_modes and not self.missing_analyses


@dataclass(frozen=True)
class RunState:
    """A run's place in its study."""

    run: PlannedRun
    state: str
    progress: Progress
    failures: int = 0
    refused: bool = False
    """The last attempt ended with bad input: trying again by itself would not help."""
    reason: str = ""


@dataclass(frozen=True)
class Study:
    """A plan and the folder it is carried out in."""

    folder: Path
    runs: tuple[PlannedRun, ...]
    title: str = ""
    attempts: int = ATTEMPTS

    def run_folder(self, run: PlannedRun) -> Path:
        """Where a run lies."""
        return self.folder / "runs" / run.name

    def states(self) -> list[RunState]:
        """How every run stands now; reads a few kilobytes of each."""
        return [read_state(self.folder, run, self.attempts) for run in self.runs]

    def save(self) -> None:
        """Write the plan down, keeping runs that an earlier plan of this study had besides."""
        runs = {run.name: run for run in self.runs}
        for earlier in read_study(self.folder).runs if self._is_written else ():
            now = runs.get(earlier.name, earlier)
            modes = tuple(dict.fromkeys((*earlier.modes, *now.modes)))
            analyses = tuple(dict.fromkeys((*earlier.analyses, *now.analyses)))
            runs[earlier.name] = dataclasses.replace(now, modes=modes, analyses=analyses)
        try:
            for part in ("runs", "journal"):
                (self.folder / part).mkdir(parents=True, exist_ok=True)
            files.replace_json(
                self.folder / "study.json",
                {
                    "format": FORMAT,
                    "title": self.title,
                    "attempts": self.attempts,
                    "runs": [dataclasses.asdict(run) for run in runs.values()],
                },
            )
        except OSError as error:
            raise UserError(f"cannot write the study {self.folder}: {error}") from error
        (self.folder / "cancel").unlink(missing_ok=True)

    @property
    def _is_written(self) -> bool:
        return (self.folder / "study.json").exists()

    def cancel(self) -> None:
        """Ask everybody who works at this study, on any machine, to save and stop."""
        (self.folder / "cancel").touch()


# Planning ----------------------------------------------------------------------------------------


def plan(
    grids: Iterable[Grid],
    common: Values | None = None,
    *,
    modes: Iterable[str] = (),
    episodes: int = 30,
    analyses: Iterable[str] = (),
    drop_replay: bool = False,
    mark: str = "",
) -> tuple[PlannedRun, ...]:
    """Check every combination before anything starts, and name it.

    Args:
        grids: what to combine.
        common: options of `svea train` for all runs.
        modes: to be evaluated in after training.
        episodes: of that evaluation, per mode.
        analyses: names of `svea analyze` to be made after training.
        drop_replay: remove each replay when its run is done.
        mark: a word that all names carry.

    Example:
        >>> grid = Grid(["walker_walk"], ["svea", "drq"], seeds="0-4")
        >>> [run.name for run in plan([grid], {"decisions": 1000})][::5]
        ['walker_walk-svea-conv-s0', 'walker_walk-drq-none-s0']
    """
    from svea.envs import expand_modes

    wanted = tuple(expand_modes(modes))
    if episodes < 1:
        raise UserError(f"episodes is {episodes}; allowed: 1 or more")
    shared = _with_whole_paths(flatten(common or {}))
    runs: dict[str, PlannedRun] = {}
    twins: dict[Config, str] = {}
    for grid in grids:
        _refuse_axes({**shared, **flatten(grid.set)})
        for point in grid.points():
            values = shared | _with_whole_paths(point)
            config = resolve(values)
            name = _name(config, grid.set, mark)
            if twin := name if name in runs else twins.get(config):
                also = "" if twin == name else f" (as {twin} too)"
                raise UserError(
                    f"run {name} is in the study twice{also}; give each task, method, "
                    "augmentation and seed once"
                )
            twins[config] = name
            runs[name] = PlannedRun(
                name, values, config.decisions, wanted, episodes, tuple(analyses), drop_replay
            )
    if not runs:
        raise UserError("the study has no runs; name at least one task, method and seed")
    return tuple(runs.values())


def resolve(values: Values) -> Config:
    """The configuration of a run, checked.

    Runs that differ in their seed alone are resolved once: checking takes milliseconds, and a
    study may have ten thousand seeds.
    """
    seed, rest = values["seed"], {k: v for k, v in values.items() if k != "seed"}
    if not 0 <= seed <= LARGEST_SEED:
        raise UserError(f"seed is {seed}; allowed: 0 to {LARGEST_SEED}")
    return dataclasses.replace(_resolve(json.dumps(rest, sort_keys=True, default=str)), seed=seed)


@functools.lru_cache(maxsize=4096)
def _resolve(values: str) -> Config:
    """The configuration for seed 0 of options given as JSON, which can be looked up."""
    from svea.config import configure

    options = json.loads(values)
    return configure(options.pop("task"), **options)


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
    there = read_study(folder)
    known = {run.name: run for run in there.runs}
    changed = [
        f"{run.name}: {', '.join(_differences(known[run.name], run))}"
        for run in runs
        if run.name in known and _differences(known[run.name], run)
    ]
    if changed:
        shown = "\n  ".join(changed[:3]) + (f"\n  ... ({len(changed)} in all)" * (len(changed) > 3))
        raise UserError(
            f"{folder} holds another study; its runs of the same name differ:\n  {shown}\n"
            "Give the same options to go on with it, or another --out"
        )
    if there.title != title or (not title and not known.keys() & {run.name for run in runs}):
        raise UserError(
            f"{folder} holds another study"
            + (f" ({there.title})" if there.title else "")
            + f" of {len(known)} runs, none of which is meant here; name another --out"
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
        content = json.loads(path.read_text())
        runs = tuple(_planned(one) for one in content["runs"])
        return Study(folder, runs, content["title"], content["attempts"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{path} cannot be read ({type(error).__name__}: {error}); the same `svea sweep` "
            "command writes it anew once it is moved away, and keeps the runs"
        ) from error


def read_study_file(path: Path) -> tuple[list[Grid], dict[str, Any]]:
    """The grids of a TOML or Python file, and its other settings (set, modes, episodes).

    A TOML file holds one grid's keys at its top, or several as `[[grid]]`; a Python file, run as it
    is, a list named `grids`.
    """
    if not path.is_file():
        raise UserError(f"no study file {str(path)!r}: give a .toml or .py file, or flags")
    if path.suffix not in (".toml", ".py"):
        raise UserError(f"study file {str(path)!r} is neither .toml nor .py")
    try:
        content: dict[str, Any] = (
            tomllib.loads(path.read_text())
            if path.suffix == ".toml"
            else {k: v for k, v in runpy.run_path(str(path)).items() if k in _PYTHON_NAMES}
        )
    except Exception as error:  # a user's own file may fail in any way
        raise UserError(f"study file {str(path)!r}: {type(error).__name__}: {error}") from error
    axes = {f.name for f in dataclasses.fields(Grid)} - {"set"}
    settings = {k: v for k, v in content.items() if k not in axes | {"grid", "grids"}}
    for name in settings:
        if name not in _FILE_SETTINGS:
            raise unknown_name("setting", name, axes | _FILE_SETTINGS | {"grid"})
    if path.suffix == ".py":
        grids = content.get("grids", [])
        if not all(isinstance(grid, Grid) for grid in grids):
            raise UserError(f"study file {str(path)!r}: `grids` must be a list of Grid")
    else:
        tables = content.get("grid") or [{k: v for k, v in content.items() if k in axes}]
        grids = [_grid(table, path) for table in tables]
    return list(grids), settings


_FILE_SETTINGS = {"set", "modes", "episodes"}
_PYTHON_NAMES = _FILE_SETTINGS | {"grids"}


def _grid(table: Any, path: Path) -> Grid:
    """A grid from a TOML table."""
    names = [f.name for f in dataclasses.fields(Grid)]
    if not isinstance(table, dict):
        raise UserError(f"study file {str(path)!r}: a grid is {table!r}; allowed: a table")
    for name in table:
        if name not in names:
            raise unknown_name("setting of a grid", name, names)
    if "tasks" not in table:
        raise UserError(f"study file {str(path)!r} names no tasks")
    return Grid(**table)


def parse_seeds(seeds: Sequence[int] | Sequence[str] | str | int) -> list[int]:
    """Seeds as numbers or text.

    >>> parse_seeds("0-2,7")
    [0, 1, 2, 7]
    """
    if isinstance(seeds, int):
        return [seeds]
    words = seeds.replace(",", " ").split() if isinstance(seeds, str) else list(seeds)
    found: list[int] = []
    for word in words:
        parts = re.fullmatch(r"(\d{1,18})(?:-(\d{1,18}))?", str(word).strip())
        first, last = (int(parts[1]), int(parts[2] or parts[1])) if parts else (1, 0)
        if not first <= last < first + 1_000_000:
            raise UserError(f"seeds is {word!r}; allowed: numbers and ranges such as 3 or 0-4")
        found += range(first, last + 1)
    return found


def parse_settings(words: Iterable[str]) -> Values:
    """Options as `name=value` words, with the names and values of `svea train`'s flags.

    >>> parse_settings(["decisions=500_000", "eval-every=100", "recipe.alpha=1"])
    {'decisions': 500000, 'eval_every': 100, 'recipe.alpha': 1.0}
    """
    from svea.config import Config

    values: Values = {}
    kinds = _option_types(Config)
    for word in words:
        name, equals, text = word.partition("=")
        name = name.strip().lstrip("-").replace("-", "_")
        if not equals:
            raise UserError(f"--set is {word!r}; allowed: name=value, e.g. decisions=500000")
        if name not in kinds:
            raise unknown_name("option", name, kinds)
        if name in values:
            raise UserError(f"--set gives {name} twice")
        values[name] = _parse_value(name, kinds[name], text.strip())
    return values


def as_flags(values: Values) -> list[str]:
    """Options as flags of `svea train`.

    >>> as_flags({"eval_every": 5, "recipe.alpha": 1.0, "tensorboard": False})
    ['--eval-every', '5', '--recipe.alpha', '1.0', '--no-tensorboard']
    """
    flags = []
    for name, value in values.items():
        parent, dot, leaf = name.replace("_", "-").rpartition(".")
        if isinstance(value, bool):
            flags.append(f"--{parent}{dot}{'' if value else 'no-'}{leaf}")
        else:
            flags += [f"--{parent}{dot}{leaf}", str(value)]
    return flags


def flatten(values: Values, prefix: str = "") -> Values:
    """Nested options under dotted names.

    >>> flatten({"recipe": {"K": 2}, "eval-every": 5})
    {'recipe.K': 2, 'eval_every': 5}
    """
    if not isinstance(values, dict):
        raise UserError(f"set is {values!r}; allowed: named values")
    flat: Values = {}
    for name, value in values.items():
        path = prefix + str(name).replace("-", "_")
        flat |= flatten(value, f"{path}.") if isinstance(value, dict) else {path: value}
    return flat


def _refuse_axes(values: Values) -> None:
    """What a study varies itself cannot be set for all of its runs."""
    axes = {"task": "tasks", "method": "methods", "augment": "augments", "seed": "seeds"}
    for name, axis in axes.items():
        if name in values:
            raise UserError(f"{name} cannot be set; give {axis} instead")
    if "out" in values:
        raise UserError("out cannot be set: a study names the folders of its runs itself")


def _names(axis: str, names: Any) -> tuple[str, ...]:
    """An axis of a grid as names."""
    given = (names,) if isinstance(names, str) else names
    if not isinstance(given, list | tuple) or not all(isinstance(name, str) for name in given):
        raise UserError(f"{axis} is {names!r}; allowed: a list of names")
    return tuple(given)


def _name(config: Config, distinguishing: Values, mark: str) -> str:
    """A folder's name: what is varied, and what a grid sets on its own."""
    parts = [config.task, config.method, config.augment]
    parts += [f"{name}={value}" for name, value in flatten(distinguishing).items()]
    parts += [mark] if mark else []
    return re.sub(r"[^\w.+=-]+", "_", "-".join([*parts, f"s{config.seed}"]))


def _with_whole_paths(values: Values) -> Values:
    """Folders as absolute paths: a worker elsewhere has another working directory."""
    return {
        name: str(Path(value).absolute())
        if name in ("data_dir", "overlay_dir") and value and value != "procedural"
        else value
        for name, value in values.items()
    }


def _option_types(kind: type, prefix: str = "") -> dict[str, Any]:
    """Dotted names of all options and their types."""
    found: dict[str, Any] = {}
    for name, hint in typing.get_type_hints(kind).items():
        nested = dataclasses.is_dataclass(hint)
        found |= (
            _option_types(typing.cast(type, hint), f"{prefix}{name}.")
            if nested
            else {prefix + name: hint}
        )
    return found


def _parse_value(name: str, kind: Any, text: str) -> Any:
    """The text of an option as its type; what is allowed beyond the type is checked later."""
    try:
        if kind is bool:
            return {"true": True, "false": False}[text.lower()]
        return kind(text) if kind in (int, float) else text
    except (ValueError, KeyError):
        allowed = {bool: "true or false", int: "a whole number", float: "a number"}[kind]
        raise UserError(f"{name} is {text!r}; allowed: {allowed}") from None


def _planned(content: dict[str, Any]) -> PlannedRun:
    """A planned run from JSON, where tuples became lists."""
    values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in content.items()}
    return PlannedRun(**values)


def _differences(old: PlannedRun, new: PlannedRun) -> list[str]:
    """Options in which two runs of one name would learn something else."""
    names = sorted(old.values.keys() | new.values.keys())
    return [
        f"{name} {old.values.get(name, 'default')} there, {new.values.get(name, 'default')} here"
        for name in names
        if old.values.get(name) != new.values.get(name)
    ]


# State, from the folders --------------------------------------------------------------------------


def read_state(study: Path, run: PlannedRun, attempts: int = ATTEMPTS) -> RunState:
    """How a run stands, from its folder and its journal."""
    progress = read_progress(study / "runs" / run.name, run)
    journal = journal_path(study, run)
    ends = [entry for entry in read_journal(journal) if entry.get("event") == "end"]
    failures = sum(entry.get("outcome") == "failed" for entry in ends)
    last = ends[-1] if ends else {}
    refused = last.get("outcome") == "refused"
    if is_locked(journal):
        state = "running"
    elif progress.done:
        state = "done"
    else:
        state = "failed" if refused or failures >= attempts else "queued"
    reason = str(last.get("reason", "")) if last.get("outcome") in ("failed", "refused") else ""
    return RunState(run, state, progress, failures, refused, reason)


def read_progress(folder: Path, run: PlannedRun) -> Progress:
    """How far the run in a folder is: its newest checkpoint, and the end of its log."""
    lines = _last_lines(folder / layout.METRICS)
    newest = next(_records(reversed(lines)), {})
    returns: dict[str, float] = {}
    evaluated = -1
    for record in _records(line for line in lines if b'"return_mean"' in line):
        if isinstance(record.get("return_mean"), int | float):
            returns[str(record.get("mode"))] = record["return_mean"]
            evaluated = record["decision"]
    saved = layout.newest_checkpoint(folder)
    trained = saved >= run.decisions and evaluated >= run.decisions
    modes = _missing_modes(folder, run, saved) if trained else run.modes
    analyses = tuple(
        name for name in run.analyses if not layout.analysis_file(folder, name).exists()
    )
    at, seconds = newest.get("decision", 0), newest.get("seconds")
    return Progress(at, seconds, returns, trained, modes, analyses)


def journal_path(study: Path, run: PlannedRun) -> Path:
    """The journal of a run's attempts."""
    return study / "journal" / f"{run.name}.jsonl"


def read_journal(path: Path) -> list[dict[str, Any]]:
    """The entries of a journal; a half line of a killed writer is left out."""
    lines = path.read_bytes().splitlines() if path.exists() else []
    return [entry for entry in map(parse_line, lines) if entry is not None]


def _last_lines(path: Path) -> list[bytes]:
    """The whole lines among the last bytes of a log."""
    try:
        with path.open("rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - TAIL_BYTES))
            return file.read(TAIL_BYTES).splitlines()[size > TAIL_BYTES :]
    except OSError:
        return []


def _records(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Lines as records with a decision; damaged ones are left out."""
    for record in map(parse_line, lines):
        if record is not None and isinstance(record.get("decision"), int):
            yield record


def _missing_modes(folder: Path, run: PlannedRun, decision: int) -> tuple[str, ...]:
    """Modes with too few recorded episodes at the last decision."""
    played: dict[str, set[str]] = {}
    for record in read_records(folder) if run.modes else ():
        if is_agent(record) and record.get("decision") == decision:
            played.setdefault(str(record.get("mode")), set()).add(episode_key(record))
    return tuple(mode for mode in run.modes if len(played.get(mode, ())) < run.episodes)
