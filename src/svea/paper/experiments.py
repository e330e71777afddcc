"""The experiments of the paper: the grid of runs behind each of its tables and figures.

Source: N. Hansen, H. Su, X. Wang, NeurIPS 2021 (arXiv:2107.00644). Experiments share runs: a
setting that several of them need has one name and is trained once. Where the paper does not say
what it ran, the note of the experiment says what we run instead. `experiments.toml` lists them.
"""

from __future__ import annotations

import dataclasses
import math
import tomllib
from dataclasses import dataclass
from importlib import resources
from typing import Any

from svea.config import Role, configure, fields_with
from svea.config.modes import ROBOT_TASKS, WORLDS
from svea.config.presets import parse_settings
from svea.core.errors import UserError, unknown_name
from svea.core.seeds import ALL
from svea.envs import expand_modes
from svea.results.summary import Unit
from svea.studies import Grid, PlannedRun, plan_runs
from svea.studies.plan import Values

SEEDS = "0-4"
EPISODES = 30
EVALUATIONS = 50  # during a run of full size: 500,000 decisions, one every 10,000
LEAST_DECISIONS = 500  # of a scaled run
PAPER = "paper"
"""The edition that has the paper's own size."""

TASKS = ("walker_walk", "walker_stand", "cartpole_swingup", "ball_in_cup_catch", "finger_spin")
AUGMENTS = ("conv", "overlay", "cutout", "blur", "affine-jitter", "rotation")


@dataclass(frozen=True)
class Setting:
    """A row, column or line of the paper: what is trained."""

    label: str
    method: str
    augment: str = "none"
    options: tuple[tuple[str, Any], ...] = ()
    """Further ones of `svea train`, by their dotted names."""

    @classmethod
    def parse(cls, text: str) -> Setting:
        """A setting as `experiments.toml` has it.

        >>> Setting.parse("DrQ ViT: drq none encoder=vit")
        Setting(label='DrQ ViT', method='drq', augment='none', options=(('encoder', 'vit'),))
        """
        label, _, words = text.partition(": ")
        method, *rest = words.split()
        augment, *options = rest or ["none"]
        return cls(label, method, augment, tuple(parse_settings(options).items()))

    @property
    def set(self) -> Values:
        """Options other than method and augmentation."""
        return dict(self.options)


@dataclass(frozen=True)
class Experiment:
    """A table or figure, as `experiments.toml` has it."""

    name: str
    where: str
    """Its place in the paper."""
    about: str
    kind: str
    """How it is drawn: a name in `pages.DRAWN`."""
    settings: tuple[Setting, ...]
    """What is compared."""
    tasks: tuple[str, ...] = TASKS
    """Rows or panels."""
    modes: tuple[str, ...] = ("train", "color_hard")
    """In which the final agents are evaluated."""
    unit: Unit = "return"
    analyses: tuple[str, ...] = ()
    """Of `svea analyze`, made of the final agents."""
    notes: tuple[str, ...] = ()
    """What the paper leaves open, and what we do."""

    @classmethod
    def of(cls, name: str, keys: dict[str, Any]) -> Experiment:
        """An experiment as a TOML file has it."""
        values = with_tuples(keys)
        values["settings"] = tuple(map(Setting.parse, keys["settings"]))
        if "modes" in keys:
            values["modes"] = tuple(expand_modes(keys["modes"], values.get("tasks", TASKS)[0]))
        return cls(name, **values)

    def runs(self, edition: Edition) -> dict[tuple[str, Setting], list[PlannedRun]]:
        """The runs of every task and setting, each checked."""
        cells: dict[tuple[str, Setting], list[PlannedRun]] = {}
        for setting in self.settings:
            for task in self.tasks:
                grid = Grid([task], [setting.method], [setting.augment], edition.seeds, setting.set)
                common = edition.values(task, setting)
                cells[task, setting] = [*plan_runs(
                    [grid], common, modes=self.modes, episodes=edition.episodes(self),
                    analyses=self.analyses, suffix=edition.run_suffix,
                )]  # fmt: skip
        return cells


@dataclass(frozen=True)
class Edition:
    """The size at which the experiments are run: the paper's, a share of it, or another edition.

    A scaled run makes fewer decisions, and fewer and shorter evaluations, so that these do not
    outweigh it: both shrink with the square root of the scale.
    """

    scale: float = 1.0
    seeds: str = SEEDS
    changes: Values = dataclasses.field(default_factory=dict)
    """Further options of `svea train`, which make it another experiment than the edition's."""
    name: str = PAPER

    def __post_init__(self) -> None:
        """Refuse what is no edition or no scale."""
        if self.name not in EDITIONS:
            raise unknown_name("edition", self.name, EDITIONS)
        if not 0 < self.scale <= 1:
            raise UserError(f"scale is {self.scale}; allowed: above 0, to 1 (the paper's size)")
        if self.sizes and self.scale != 1:
            raise UserError(f"scale is {self.scale}; allowed with edition {self.name!r}: 1")

    @property
    def sizes(self) -> dict[str, Any]:
        """What `editions.toml` says; nothing of the paper's own."""
        return SIZES.get(self.name, {})

    @property
    def suffix(self) -> str:
        """What the edition's folder, pages and figures carry in their names."""
        return self.name if self.sizes else self.run_suffix

    @property
    def run_suffix(self) -> str:
        """What the names of its runs carry; those of `editions.toml` are named as by a sweep."""
        return "" if self.scale == 1 else f"scaled-{self.scale:g}"

    @property
    def title(self) -> str:
        """Of a study: which edition it is."""
        return " ".join(filter(None, [PAPER, self.suffix]))

    @property
    def mark(self) -> str:
        """What every figure says; nothing at the paper's size and settings."""
        if self.sizes:
            return f"{self.sizes['title']} edition"
        if self.scale != 1:
            return f"scaled to {self.scale:g}"
        return "changed settings" if self.caveats else ""

    @property
    def caveats(self) -> list[str]:
        """What every rendering must say."""
        found = []
        if self.sizes:
            config = configure(self.sizes["tasks"][0], **self.sizes["set"])
            found.append(
                f"{self.sizes['title'].upper()} EDITION: {len(self.sizes['tasks'])} tasks of "
                f"DMControl and {len(self.sizes['robots'])} of the robot, pictures of "
                f"{config.image_size} pixels, small networks, {config.decisions:,} decisions a "
                "run. Not a replication."
            )
        elif self.scale != 1:
            found.append(
                f"SCALED: runs of {self.scale:g} times the paper's decisions, evaluated more "
                "rarely and over fewer episodes. Not a replication."
            )
        how = fields_with(Role.HOW, Role.WHERE)
        if what := [f"{name}={v}" for name, v in self.changes.items() if name not in how]:
            changed = ", ".join(what)
            whose = self.sizes.get("title", PAPER)
            found.append(f"CHANGED from the {whose}'s settings: {changed}. Not a replication.")
        return found

    @property
    def experiments(self) -> dict[str, Experiment]:
        """Those that it has, by name."""
        return EDITIONS[self.name]

    def experiment(self, name: str) -> Experiment:
        """An experiment by its name.

        >>> sum(map(len, Edition().experiment("table1").runs(Edition()).values()))
        200
        """
        if name in self.experiments:
            return self.experiments[name]
        if others := [edition for edition, own in EDITIONS.items() if name in own]:
            where = " or ".join(others)
            raise UserError(f"edition {self.name!r} leaves out {name}; allowed: --edition {where}")
        raise unknown_name("experiment", name, self.experiments)

    def episodes(self, experiment: Experiment) -> int | str:
        """Episodes of the final evaluation: every world once, or a smaller number.

        Each test world of a robot task is still shown equally often.
        """
        if not self.suffix:
            return ALL
        few = self.sizes.get("episodes", self._few_episodes)
        worlds = WORLDS if experiment.tasks[0] in ROBOT_TASKS else 1
        return worlds * -(-few // worlds)

    @property
    def _few_episodes(self) -> int:
        """Of a scaled evaluation."""
        return max(3, round(EPISODES * math.sqrt(self.scale)))

    def values(self, task: str, setting: Setting) -> Values:
        """The options that runs have in addition to their setting's."""
        if self.scale == 1:
            return self.sizes.get("set", {}) | self.changes
        full = configure(task, method=setting.method, augment=setting.augment, **setting.set)
        decisions = max(LEAST_DECISIONS, round(full.decisions * self.scale))
        evaluations = max(5, round(EVALUATIONS * math.sqrt(self.scale)))
        scaled = {
            "decisions": decisions,
            "warmup": min(full.warmup, decisions // 5),
            "eval_every": -(-decisions // evaluations),
            "eval_episodes": self._few_episodes,
            "save_every": -(-decisions // 5),
            "log_every": -(-decisions // EVALUATIONS),
        }
        return scaled | self.changes


def read_table(name: str) -> dict[str, dict[str, Any]]:
    """A TOML file of this folder."""
    source = resources.files("svea.paper").joinpath(name)
    return tomllib.loads(source.read_text(encoding="utf-8"))


def with_tuples(keys: dict[str, Any]) -> dict[str, Any]:
    """A table whose lists cannot change."""
    return {key: tuple(one) if isinstance(one, list) else one for key, one in keys.items()}


def _resized(name: str, sizes: dict[str, Any]) -> Experiment:
    """An experiment as an edition has it."""
    own = dict(sizes["experiments"][name])
    tasks, note, add = own.pop("tasks", None), own.pop("note", ""), own.pop("add", [])
    one = Experiment.of(name, own) if "kind" in own else EXPERIMENTS[name]
    if not isinstance(tasks, list):
        tasks = sizes["robots" if one.tasks[0] in ROBOT_TASKS else "tasks"][:tasks]
    return dataclasses.replace(
        one,
        tasks=tuple(tasks),
        settings=(*one.settings, *map(Setting.parse, add)),
        modes=tuple(expand_modes(own.get("modes", one.modes), tasks[0])),
        notes=(*one.notes, *filter(None, [note])),
    )


EXPERIMENTS = {n: Experiment.of(n, own) for n, own in read_table("experiments.toml").items()}
"""The paper's, at its own size."""
SIZES = read_table("editions.toml")
"""Of every edition but the paper's."""
EDITIONS = {PAPER: EXPERIMENTS} | {
    edition: {name: _resized(name, sizes) for name in sizes["experiments"]}
    for edition, sizes in SIZES.items()
}
"""The experiments of each edition."""
