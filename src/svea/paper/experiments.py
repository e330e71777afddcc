"""The experiments of the paper: the grid of runs behind each of its tables and figures.

Source: N. Hansen, H. Su, X. Wang, NeurIPS 2021 (arXiv:2107.00644). Experiments share runs: a
setting that several of them need has one name and is trained once. Where the paper does not say
what it ran, the note of the experiment says what we run instead.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from pathlib import Path

from svea.config import Role, configure, fields_with
from svea.config.modes import WORLDS
from svea.core.errors import UserError, unknown_name
from svea.core.seeds import ALL
from svea.envs import ROBOT_TASKS, expand_modes
from svea.results import Unit
from svea.studies import Grid, PlannedRun, Study, open_study, plan_runs
from svea.studies.plan import Values

SEEDS = "0-4"
EPISODES = 30
EVALUATIONS = 50  # during a run of full size: 500,000 decisions, one every 10,000
LEAST_DECISIONS = 500  # of a scaled run

TASKS = ("walker_walk", "walker_stand", "cartpole_swingup", "ball_in_cup_catch", "finger_spin")
AUGMENTS = ("conv", "overlay", "cutout", "blur", "affine-jitter", "rotation")
INTENSITIES = tuple(expand_modes(["distracting_cs:all"]))
LOWEST_INTENSITY = INTENSITIES[0]


@dataclass(frozen=True)
class Setting:
    """A row, column or line of the paper: what is trained."""

    label: str
    method: str
    augment: str = "none"
    encoder: str = "cnn"
    views: int = 1
    """DrQ's K and M, which are equal in every setting here."""

    @property
    def set(self) -> Values:
        """Options other than method and augmentation."""
        values: Values = {} if self.encoder == "cnn" else {"encoder": self.encoder}
        return values | ({"recipe.K": self.views, "recipe.M": self.views} if self.views > 1 else {})


@dataclass(frozen=True)
class Experiment:
    """A table or figure.

    Attributes:
        name: as users type it.
        where: its place in the paper.
        about: one line.
        kind: how it is drawn: table, curves, curves-by-augmentation, mean-curves, intensities,
            mean-intensities, q-variance or q-gap.
        tasks: rows or panels.
        settings: what is compared.
        modes: in which the final agents are evaluated.
        unit: return or success.
        analyses: of `svea analyze`, made of the final agents.
        notes: what the paper leaves open, and what we do.
    """

    name: str
    where: str
    about: str
    kind: str
    tasks: tuple[str, ...]
    settings: tuple[Setting, ...]
    modes: tuple[str, ...] = ("train", "color_hard")
    unit: Unit = "return"
    analyses: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

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

    def folder(self) -> Path:
        """Where runs of this size are by default; all experiments share it."""
        return Path("runs") / "-".join(filter(None, ["paper", self.suffix]))

    def study(self, experiment: Experiment, folder: Path | None = None, attempts: int = 3) -> Study:
        """An experiment's runs as a study, in the folder that all experiments share."""
        runs = [run for cell in experiment.runs(self).values() for run in cell]
        title = " ".join(filter(None, ["paper", self.suffix]))
        return open_study(folder or self.folder(), runs, title, attempts)


def experiment(name: str) -> Experiment:
    """An experiment by its name.

    >>> sum(len(runs) for runs in experiment("table1").runs().values())
    200
    """
    if name not in EXPERIMENTS:
        raise unknown_name("experiment", name, EXPERIMENTS)
    return EXPERIMENTS[name]


_DRQ, _NAIVE = Setting("DrQ", "drq"), Setting("DrQ + conv", "drq", "conv")
_SVEA = Setting("SVEA (conv)", "svea", "conv")
_SVEA_OVERLAY = Setting("SVEA (overlay)", "svea", "overlay")
_CURL, _RAD, _PAD = Setting("CURL", "curl"), Setting("RAD", "rad"), Setting("PAD", "pad")
_SODA_CONV = Setting("SODA (conv)", "soda", "conv")
_SODA = Setting("SODA (overlay)", "soda", "overlay")
_VIT = tuple(
    dataclasses.replace(one, label=f"{one.label} ViT", encoder="vit")
    for one in (_DRQ, _NAIVE, _SVEA)
)
_DRQ_VIT, _NAIVE_VIT, _SVEA_VIT = _VIT
_MIX_ALL = Setting("data-mixing only", "mix-all", "conv")
_ROW_5 = Setting("α=0, β=1", "augmented-prediction", "conv")
_UNDER_AUGMENTATION = tuple(
    Setting(f"{label} {augment}", method, augment)
    for augment in AUGMENTS
    for label, method in (("SVEA", "svea"), ("DrQ +", "drq"))
)
_KM = tuple(Setting(f"DrQ [K={n},M={n}]", "drq", "conv", views=n) for n in (1, 2, 5))
_QUOTED = "the paper quotes CURL, RAD, PAD and SODA from the SODA paper; here all are run"
_WHICH_SVEA = (
    "the paper does not say which augmentation its SVEA has here; conv and overlay are run"
)

EXPERIMENTS: dict[str, Experiment] = {
    one.name: one
    for one in (
        Experiment(
            "table1",
            "Table 1",
            "DMControl-GB: random colours and natural videos",
            "table",
            TASKS,
            (_CURL, _RAD, _DRQ, _PAD, _SODA_CONV, _SODA, _SVEA, _SVEA_OVERLAY),
            ("color_hard", "video_easy"),
            notes=(_QUOTED,),
        ),
        Experiment(
            "table-robot",
            "Table 2",
            "robotic manipulation: success in training and in 25 unseen worlds",
            "table",
            ROBOT_TASKS,
            (_DRQ, _NAIVE, _SVEA, *_VIT),
            ("train", "test"),
            unit="success",
            notes=("the paper's robot environments were never released; ours are a rebuild",),
        ),
        Experiment(
            "table-ablations",
            "Table 3 (appendix A)",
            "twelve ablations on walker_walk",
            "table",
            ("walker_walk",),
            (
                dataclasses.replace(_SVEA_VIT, label="1 SVEA ViT"),
                dataclasses.replace(_SVEA, label="2 SVEA"),
                Setting("3 augmented target", "svea-augmented-target", "conv"),
                dataclasses.replace(_MIX_ALL, label="4 mix-all"),
                dataclasses.replace(_ROW_5, label="5 augmented prediction"),
                Setting("6 clean target", "clean-target"),
                dataclasses.replace(_DRQ_VIT, label="7 DrQ ViT"),
                dataclasses.replace(_DRQ, label="8 DrQ"),
                dataclasses.replace(_NAIVE_VIT, label="9 DrQ + conv ViT"),
                dataclasses.replace(_NAIVE, label="10 DrQ + conv"),
                dataclasses.replace(_RAD, label="11 RAD"),
                Setting("12 RAD + conv", "rad", "conv"),
            ),
            notes=(
                "the paper prints the same test return, 569±139, in rows 5 and 10",
                "its column 'Aug. tgt.' can also be read so that SVEA bootstraps from unshifted "
                "successors; as its code does, we shift them (method svea-clean-target: not)",
            ),
        ),
        Experiment(
            "table-video-hard",
            "Table 4 (appendix F)",
            "DMControl-GB: video_hard",
            "table",
            TASKS,
            (_CURL, _RAD, _DRQ, _PAD, _SODA, _SVEA_OVERLAY),
            ("video_hard",),
            notes=(_QUOTED,),
        ),
        Experiment(
            "fig-q-variance",
            "section 4, figure (top)",
            "mean variance of the Q-target, DrQ and SVEA with conv",
            "q-variance",
            TASKS,
            (_NAIVE, _SVEA),
            notes=("the paper does not define the variance; docs/evaluation.md says what ours is",),
        ),
        Experiment(
            "fig-q-gap",
            "section 4, figure (bottom)",
            "difference of Q-values on augmented and plain observations, DrQ agents",
            "q-gap",
            TASKS,
            (_DRQ,),
            analyses=("q-gap",),
        ),
        Experiment(
            "fig-components",
            "section 6.1, training and test performance",
            "SVEA's two components, in training and under unseen colours",
            "curves",
            TASKS,
            (_SVEA, _DRQ, _NAIVE, _MIX_ALL, _ROW_5),
        ),
        Experiment(
            "fig-stability",
            "section 6.1, data augmentations; appendix B",
            "training under six augmentations, SVEA and DrQ",
            "curves-by-augmentation",
            TASKS,
            (_DRQ, *_UNDER_AUGMENTATION),
            ("train",),
        ),
        Experiment(
            "fig-aug-generalization",
            "appendix C",
            "generalisation of SVEA by augmentation",
            "curves",
            TASKS,
            tuple(one for one in _UNDER_AUGMENTATION if one.method == "svea"),
            notes=("the text does not name the tasks of this figure; all five are run",),
        ),
        Experiment(
            "fig-km",
            "section 6.1, DrQ baselines (left)",
            "DrQ with more views against SVEA, all with conv",
            "mean-curves",
            TASKS,
            (_SVEA, *_KM),
            ("train",),
            notes=("the text names no values of K and M beyond 1; 2 and 5 are our choice",),
        ),
        Experiment(
            "fig-distracting",
            "section 6.1, DistractingCS (right)",
            "Distracting Control Suite: return by intensity, mean of five tasks",
            "mean-intensities",
            TASKS,
            (_DRQ, _SVEA, _SVEA_OVERLAY),
            INTENSITIES,
            notes=(_WHICH_SVEA,),
        ),
        Experiment(
            "fig-distracting-tasks",
            "appendix E",
            "Distracting Control Suite: return by intensity, task by task",
            "intensities",
            TASKS,
            (_DRQ, _SVEA, _SVEA_OVERLAY),
            INTENSITIES,
            notes=(
                _WHICH_SVEA,
                "the caption excepts ball_in_cup_catch at the highest intensity from SVEA's lead, "
                "the appendix text does not",
            ),
        ),
        Experiment(
            "fig-vit",
            "section 6.2",
            "Vision Transformers, in training and under unseen colours",
            "curves",
            ("walker_walk", "cartpole_swingup", "walker_stand"),
            _VIT,
            notes=("the text names two of the three tasks; walker_stand is our choice",),
        ),
        Experiment(
            "fig-robot-cnn",
            "section 6.3, CNN",
            "training on the robot tasks, CNN",
            "curves",
            ROBOT_TASKS,
            (_DRQ, _NAIVE, _SVEA),
            ("train",),
        ),
        Experiment(
            "fig-robot-vit",
            "section 6.3, ViT",
            "training on the robot tasks, ViT",
            "curves",
            ROBOT_TASKS,
            _VIT,
            ("train",),
        ),
        Experiment(
            "fig-base",
            "appendix D",
            "RAD as the base algorithm, with and without SVEA",
            "curves",
            TASKS,
            (
                _RAD,
                Setting("RAD + conv", "rad", "conv"),
                Setting("SVEA on RAD (conv)", "svea-rad", "conv"),
            ),
        ),
    )
}
