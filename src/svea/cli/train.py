"""`svea train`: flags over the defaults of preset, method and task; then training."""

from __future__ import annotations

import dataclasses

from svea.cli.arguments import STYLE, Positional, refuse_dashes, tyro
from svea.config import Config, check, resolve
from svea.errors import UserError
from svea.studies import parse_seeds


def run(arguments: list[str]) -> int:
    """Read the arguments and run the verb."""
    config, seeds = train_flags(arguments)
    from svea.training import train, train_together  # after the flags: help needs no torch

    if len(seeds) < 2:
        train(dataclasses.replace(config, seed=seeds[0]) if seeds else config)
        return 0
    folder = {seed: f"{config.out}/seed-{seed}" if config.out else "" for seed in seeds}
    train_together([dataclasses.replace(config, seed=s, out=folder[s]) for s in seeds])
    return 0


def train_flags(arguments: list[str]) -> tuple[Config, list[int]]:
    """Read the flags twice: once to learn preset, method and task, once over their defaults."""
    refuse_dashes(arguments)

    @dataclasses.dataclass(frozen=True)
    class Train(Config):
        """Train an agent. The same command again continues the run."""

        task: Positional[str] = tyro.MISSING
        """A dm_control suite task as domain_task, robot_reach, robot_reach_moving or robot_push, or
        module:function of your own environment."""
        seeds: tuple[str, ...] = ()
        """Several seeds, trained together in one process: 0-4, or 0 1 2. Instead of seed."""

    seeds: list[int] = []

    def read(defaults: Config) -> Config:
        values = {f.name: getattr(defaults, f.name) for f in dataclasses.fields(Config)}
        flags = tyro.cli(
            Train,
            prog="svea train",
            description="Train an agent. The same command again continues the run.",
            args=arguments,
            default=Train(**values | {"task": tyro.MISSING}),
            config=STYLE,
        )
        seeds[:] = parse_seeds(flags.seeds)
        if len(set(seeds)) < len(seeds):
            raise UserError(f"seeds names a seed twice: {' '.join(flags.seeds)}")
        if seeds and flags.seed != Config.seed:
            raise UserError(f"both seed {flags.seed} and seeds are given; allowed: one of them")
        return Config(**{f.name: getattr(flags, f.name) for f in dataclasses.fields(Config)})

    first = read(Config(task=tyro.MISSING))
    defaults = resolve(
        first.task,
        preset=first.preset,
        base=first.base,
        encoder=first.encoder,
        method=first.method,
    )
    return check(read(defaults)), seeds
