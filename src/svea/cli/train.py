"""`svea train`: flags over the defaults of preset, method and task; and `svea export`."""

import argparse
import dataclasses
from pathlib import Path

import tyro

from svea.cli.arguments import STYLE, Positional, Trust, brief_help
from svea.config import Config, check, resolve
from svea.core.errors import UserError
from svea.core.files import output_folder
from svea.core.given import name_task
from svea.core.terminal import Steps, unfiltered, waiting
from svea.studies import parse_seeds


def run(arguments: list[str]) -> int:
    """Read the arguments and run the verb."""
    config, seeds = train_flags(arguments)
    with waiting("starting"):
        from svea.training import train, train_together  # after the flags: help needs no torch

    if len(seeds) < 2:
        train(dataclasses.replace(config, seed=seeds[0]) if seeds else config)
        return 0
    folder = {seed: f"{config.out}/seed-{seed}" if config.out else "" for seed in seeds}
    train_together([dataclasses.replace(config, seed=s, out=folder[s]) for s in seeds])
    return 0


DECISIVE = ("preset", "method", "base", "encoder")
"""Options that decide the defaults of others."""


def train_flags(arguments: list[str]) -> tuple[Config, list[int]]:
    """Read the flags twice: once to learn preset, method and task, once over their defaults."""

    @brief_help
    @dataclasses.dataclass(frozen=True)
    class Train(Config):
        """Train an agent. The same command again continues the run.

        Example: svea train walker_walk --preset quick --method svea --seed 1
        """

        task: Positional[str] = tyro.MISSING
        """A dm_control suite task as domain_task, robot_reach, robot_reach_moving or robot_push; or
        an environment of your own: module:function, or a Gymnasium id such as CarRacing-v3."""
        seeds: tuple[str, ...] = ()
        """Several seeds, trained together in one process: 0-4, or 0 1 2. Instead of seed."""

    def read(defaults: Config) -> tuple[Config, list[int]]:
        shown = Train(**vars(defaults) | {"task": tyro.MISSING})
        with unfiltered():
            flags = tyro.cli(Train, prog="svea train", args=arguments, default=shown, config=STYLE)
        given = vars(flags) | {"task": name_task(flags.task)}
        seeds = parse_seeds(given.pop("seeds"))
        if len(set(seeds)) < len(seeds):
            raise UserError(f"seeds is {' '.join(flags.seeds)}; allowed: each seed once")
        if seeds and flags.seed != Config.seed:
            raise UserError(f"both seed {flags.seed} and seeds are given; allowed: one of them")
        return Config(**given), seeds

    first, _ = read(_defaults_to_show(arguments))
    config, seeds = read(resolve(first.task, **{name: getattr(first, name) for name in DECISIVE}))
    return check(config), seeds


def _defaults_to_show(arguments: list[str]) -> Config:
    """The defaults that --help shows: of the task, preset and method in the same command."""
    if not {"-h", "--help"} & set(arguments):
        return Config(task=tyro.MISSING, encoder="")  # the method's own, unless a flag names one
    flags = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name in DECISIVE:
        flags.add_argument(f"--{name}")
    chosen, _ = flags.parse_known_args(arguments)
    given = {name: value for name, value in vars(chosen).items() if value}
    task = arguments[0] if not arguments[0].startswith("-") else "walker_walk"
    try:
        return resolve(task, **given)
    except UserError:
        return Config(task=tyro.MISSING)


def export(
    run: Positional[Path],
    folder: Positional[Path],
    small: bool = False,
    critic: bool = False,
    trust: Trust = False,
) -> int:
    """Export the newest checkpoint; `svea eval` and `load_agent` take the folder like a run.

    Example: svea export runs/walker_walk-svea-0 exported

    Args:
        run: folder made by `svea train`.
        folder: a new folder.
        small: the acting part alone, in 8 bits: a tenth of the size, without Q-values.
        critic: with --small, the Q-functions as well, for `svea play` and `svea analyze q-gap`.
    """
    with Steps("exports") as steps:
        steps.doing(f"exporting {run}")
        from svea.runs.load import export as export_run

        made = export_run(run, output_folder(folder, "folder"), small=small, critic=critic)
    print(made)
    return 0
