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
from svea.config.modes import WORLDS
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

TASKS = ("walker_walk", "walker_stand", "cartpole_swingup", "ball_in_cup_catch", "finger_spin")
AUGMENTS = ("conv", "overlay", "cutout", "blur", "affine-jitter", "rotation")


@dataclass(frozen=True)
class Setting:
    """A row, column or line of the paper: what is trained."""

    label: str
    method: str
    augment: str = "none"
    encoder: str = "cnn"
    views: int = 1
    """DrQ's K and M, which are equal in every setting here."""

    @classmethod
    def parse(cls, text: str) -> Setting:
        """A setting as `experiments.toml` has it.

        >>> Setting.parse("DrQ ViT: drq none vit")
        Setting(label='DrQ ViT', method='drq', augment='none', encoder='vit', views=1)
        """
        label, _, words = text.partition(": ")
        method, *others = words.split()
        names = ("augment", "encoder")
        views = int(others[2]) if len(others) > 2 else 1
        return cls(label, method, **dict(zip(names, others, strict=False)), views=views)

    @property
    def set(self) -> Values:
        """Options other than method and augmentation."""
        values: Values = {} if self.encoder == "cnn" else {"encoder": self.encoder}
        return values | ({"recipe.K": self.views, "recipe.M": self.views} if self.views > 1 else {})


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

    def runs(self, scale: Scale | None = None) -> dict[tuple[str, Setting], list[PlannedRun]]:
        """The runs of every task and setting, each checked."""
        scale = scale or Scale()
        cells: dict[tuple[str, Setting], list[PlannedRun]] = {}
        for setting in self.settings:
            for task in self.tasks:
                grid = Grid([task], [setting.method], [setting.augment], scale.seeds, setting.set)
                common = scale.values(task, setting)
                cells[task, setting] = list(
                    plan_runs(
                        [grid], common, modes=self.modes, episodes=self._episodes(scale),
                        analyses=self.analyses, suffix=scale.suffix,
                    )
                )  # fmt: skip
        return cells

    def _episodes(self, scale: Scale) -> int | str:
        """Episodes of the final evaluation: every world once, or a scaled number.

        Scaled, each test world of a robot task is still shown equally often.
        """
        if scale.scale == 1:
            return ALL
        worlds = WORLDS if "test" in self.modes else 1
        return worlds * -(-scale.final_episodes // worlds)


@dataclass(frozen=True)
class Scale:
    """How much of the paper's size is run.

    A scaled run makes fewer decisions, and fewer and shorter evaluations, so that these do not
    outweigh it: both shrink with the square root of the scale.
    """

    scale: float = 1.0
    seeds: str = SEEDS
    changes: Values = dataclasses.field(default_factory=dict)
    """Further options of `svea train`, which make it another experiment than the paper's."""

    def __post_init__(self) -> None:
        """Refuse what is not a scale."""
        if not 0 < self.scale <= 1:
            raise UserError(f"scale is {self.scale}; allowed: above 0, to 1 (the paper's size)")

    @property
    def suffix(self) -> str:
        """What the names of scaled runs and their folder carry."""
        return "" if self.scale == 1 else f"scaled-{self.scale:g}"

    @property
    def final_episodes(self) -> int:
        """Episodes per mode of the final evaluation."""
        return max(3, round(EPISODES * math.sqrt(self.scale)))

    @property
    def caveats(self) -> list[str]:
        """What every rendering must say."""
        found = []
        if self.scale != 1:
            found.append(
                f"SCALED: runs of {self.scale:g} times the paper's decisions, evaluated more "
                "rarely and over fewer episodes. Not a replication."
            )
        how = fields_with(Role.HOW, Role.WHERE)
        what = {k: v for k, v in self.changes.items() if k not in how}
        if what:
            changed = ", ".join(f"{name}={value}" for name, value in what.items())
            found.append(f"CHANGED from the paper's settings: {changed}. Not a replication.")
        return found

    def values(self, task: str, setting: Setting) -> Values:
        """The options that runs have in addition to their setting's."""
        if self.scale == 1:
            return self.changes
        full = configure(task, method=setting.method, augment=setting.augment, **setting.set)
        decisions = max(LEAST_DECISIONS, round(full.decisions * self.scale))
        evaluations = max(5, round(EVALUATIONS * math.sqrt(self.scale)))
        scaled = {
            "decisions": decisions,
            "warmup": min(full.warmup, decisions // 5),
            "eval_every": -(-decisions // evaluations),
            "eval_episodes": self.final_episodes,
            "save_every": -(-decisions // 5),
            "log_every": -(-decisions // EVALUATIONS),
        }
        return scaled | self.changes


def experiment(name: str) -> Experiment:
    """An experiment by its name.

    >>> sum(len(runs) for runs in experiment("table1").runs().values())
    200
    """
    if name not in EXPERIMENTS:
        raise unknown_name("experiment", name, EXPERIMENTS)
    return EXPERIMENTS[name]


def read_table(name: str) -> dict[str, dict[str, Any]]:
    """A TOML file of this folder."""
    source = resources.files("svea.paper").joinpath(name)
    return tomllib.loads(source.read_text(encoding="utf-8"))


def _all_experiments() -> dict[str, Experiment]:
    """What `experiments.toml` says, by name."""
    found = {}
    for name, keys in read_table("experiments.toml").items():
        values: dict[str, Any] = {
            key: tuple(one) if isinstance(one, list) else one for key, one in keys.items()
        }
        values["settings"] = tuple(map(Setting.parse, keys["settings"]))
        if "modes" in keys:
            values["modes"] = tuple(expand_modes(keys["modes"], values.get("tasks", TASKS)[0]))
        found[name] = Experiment(name, **values)
    return found


EXPERIMENTS = _all_experiments()
