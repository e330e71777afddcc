"""The plan of a study: grids of tasks, methods, augmentations and seeds, checked and named."""

import dataclasses
import functools
import itertools
import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from svea.config import Config, configure
from svea.config.presets import bounded
from svea.config.run import flat
from svea.core.errors import LARGEST, UserError, unknown_name
from svea.core.files import output_folder
from svea.envs import expand_modes
from svea.evaluation import Episodes, check_episodes

Values = dict[str, Any]
"""Options of `svea train` by their dotted names."""
LONGEST_NAME = 200  # bytes; journals and unfinished files add to it
NOT_SET = {"task", "method", "augment", "seed", "out"}
FILE_SETTINGS = ("set", "modes", "episodes", "export")


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
            values = {"task": task, "method": method, "seed": seed} | flat(self.set)
            yield values if augment is None else values | {"augment": augment}


@dataclass(frozen=True)
class PlannedRun:
    """One run of a study: enough to start it, and to tell from its folder how far it is."""

    name: str
    values: Values
    """The options of training that were given, `task` among them."""
    decisions: int
    modes: tuple[str, ...] = ()
    """To evaluate in after training, in addition to the evaluations during training."""
    episodes: Episodes = 30
    """Of that evaluation, per mode, or by mode; `all`: each of a mode's worlds once."""
    analyses: tuple[str, ...] = ()
    """Names of `svea analyze`, after training."""
    export: str = ""
    """Folder into which the agent goes under the run's name once it is trained; empty: none."""

    @functools.cached_property
    def config(self) -> Config:
        """The configuration that `svea train` will resolve."""
        return resolve(self.values)

    @property
    def export_folder(self) -> Path:
        """Where the agent is exported to."""
        return Path(self.export) / self.name


def plan_runs(
    grids: Iterable[Grid],
    common: Values | None = None,
    *,
    modes: Sequence[str] = (),
    episodes: Episodes = 30,
    analyses: Iterable[str] = (),
    export: str | Path = "",
    suffix: str = "",
) -> tuple[PlannedRun, ...]:
    """Check every combination before anything starts, and name it.

    All runs have the `common` options of training, and the `suffix` in their names. A group of
    modes is what each run's task has of it. The rest is as in `PlannedRun`.

    Example:
        >>> grid = Grid(["walker_walk"], ["svea", "drq"], seeds="0-4")
        >>> [run.name for run in plan_runs([grid], {"decisions": 1000})][::5]
        ['walker_walk-svea-conv-s0', 'walker_walk-drq-none-s0']
    """
    named = _names("modes", modes)
    expand_modes(named)
    modes_of = functools.cache(lambda task: tuple(expand_modes(named, task)))
    check_episodes(episodes)
    if not isinstance(export, str | Path):
        raise UserError(f"export is {export!r}; allowed: the name of a folder")
    exports = str(output_folder(Path(export), "export").absolute()) if export else ""
    shared = _with_absolute_paths(flat(common or {}))
    runs: dict[str, PlannedRun] = {}
    names: dict[Config, str] = {}
    for grid in grids:
        if taken := sorted(NOT_SET & {*shared, *flat(grid.set)}):
            raise UserError(
                f"{taken[0]} cannot be set for runs of a study; allowed: tasks, methods, augments "
                "and seeds as such, and --out for the study"
            )
        for point in grid.points():
            values = shared | _with_absolute_paths(point)
            config = resolve(values)
            # A run is named after what is varied, and what its grid sets on its own.
            parts = [config.task, config.method, config.augment]
            parts += [f"{option}={value}" for option, value in flat(grid.set).items()]
            parts += [suffix] if suffix else []
            name = bounded("-".join(parts), f"s{config.seed}", LONGEST_NAME)
            if twin := name if name in runs else names.get(config):
                also = "" if twin == name else f" (also as {twin})"
                raise UserError(f"run {name} is in the study twice{also}; name each run once")
            names[config] = name
            runs[name] = PlannedRun(
                name, values, config.decisions, modes_of(config.task), episodes, tuple(analyses),
                exports,
            )  # fmt: skip
    if not runs:
        raise UserError("the study has no runs; name at least one task, method and seed")
    check_episodes(episodes, dict.fromkeys(mode for run in runs.values() for mode in run.modes))
    return tuple(runs.values())


def resolve(values: Values) -> Config:
    """The configuration of a run, checked: once for all seeds, as it takes milliseconds."""
    rest = dict(values)
    seed = rest.pop("seed", None)
    if type(seed) is not int or not 0 <= seed <= LARGEST:
        raise UserError(f"seed is {seed!r}; allowed: 0 to {LARGEST}")
    return dataclasses.replace(_resolve(json.dumps(rest, sort_keys=True, default=str)), seed=seed)


@functools.lru_cache(maxsize=4096)
def _resolve(values: str) -> Config:
    """The configuration with seed 0; the options come as JSON because a cache key must hash."""
    options = json.loads(values)
    return configure(options.pop("task", None), **options)


def read_study_file(path: Path) -> tuple[list[Grid], dict[str, Any]]:
    """The grids of a TOML file, at its top or as `[[grid]]`, and its other settings."""
    if path.suffix != ".toml" or not path.is_file():
        raise UserError(f"no study file {str(path)!r}; allowed: one that ends in .toml, or flags")
    try:
        settings = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"study file {str(path)!r}: {type(error).__name__}: {error}") from error
    keys = [f.name for f in dataclasses.fields(Grid)]
    axes = {name: settings.pop(name) for name in keys if name in settings and name != "set"}
    tables, problem = settings.pop("grid", None) or [axes], ""
    for name in settings.keys() - FILE_SETTINGS:
        raise unknown_name("setting", name, [*FILE_SETTINGS, *keys, "grid"])
    if not (isinstance(tables, list) and all(isinstance(table, dict) for table in tables)):
        problem = f": grid is {tables!r}; allowed: tables headed [[grid]]"
    elif unknown := {name for table in tables for name in table} - set(keys):
        raise unknown_name("setting of a grid", min(unknown), keys)
    elif not all("tasks" in table for table in tables):
        problem = ' names no tasks; add e.g. tasks = ["walker_walk"]'
    if problem:
        raise UserError(f"study file {str(path)!r}{problem}")
    return [Grid(**table) for table in tables], settings


def _names(axis: str, names: Any) -> tuple[str, ...]:
    """An axis of a grid as names."""
    given = (names,) if isinstance(names, str) else names
    if not isinstance(given, list | tuple) or not all(isinstance(name, str) for name in given):
        raise UserError(f"{axis} is {names!r}; allowed: a list of names")
    return tuple(given)


def _with_absolute_paths(values: Values) -> Values:
    """Folders as absolute paths: a worker on another machine has another working directory."""
    folders = {
        name: str(Path(values[name]).absolute())
        for name in ("data_dir", "overlay_dir")
        if isinstance(values.get(name), str) and values[name] not in ("", "procedural")
    }
    return values | folders


def parse_seeds(seeds: Sequence[int] | Sequence[str] | str | int) -> list[int]:
    """Seeds as numbers or text.

    >>> parse_seeds("0-2,7")
    [0, 1, 2, 7]
    """
    allowed = "allowed: numbers and ranges such as 3 or 0-4"
    if isinstance(seeds, bool) or not isinstance(seeds, int | str | list | tuple | range):
        raise UserError(f"seeds is {seeds!r}; {allowed}")
    if isinstance(seeds, int):
        return [seeds]
    words = seeds.replace(",", " ").split() if isinstance(seeds, str) else list(seeds)
    found: list[int] = []
    for word in words:
        parts = re.fullmatch(r"(\d{1,18})(?:-(\d{1,18}))?", str(word).strip())
        first, last = (int(parts[1]), int(parts[2] or parts[1])) if parts else (1, 0)
        if not first <= last < first + 1_000_000:
            raise UserError(f"seeds is {word!r}; {allowed}")
        found += range(first, last + 1)
    return found
