"""Training: one run, or several that take turns in one process. The loop itself is in `loop`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

from svea import speed
from svea.config import Config, check
from svea.errors import SveaError
from svea.runs import incidents
from svea.training.interrupts import Interrupt, Stopped, interrupts
from svea.training.loop import Trainer
from svea.training.run_folder import in_its_folder, is_finished, open_folder

__all__ = ["Interrupt", "Stopped", "Trainer", "open_trainer", "train", "train_together"]


def train(config: Config) -> Path:
    """Train, or continue training, and return the run folder.

    Example:
        >>> run = train(configure("walker_walk", preset="quick"))  # doctest: +SKIP
    """
    config = in_its_folder(check(config))
    with incidents.recorded(config.folder), speed.explained(), ExitStack() as stack:
        if trainer := open_trainer(config, stack):
            trainer.run()
    return config.folder


def train_together(configs: list[Config]) -> list[Path]:
    """Train several runs, e.g. seeds of one configuration, in one process, taking turns.

    On a GPU each run has a lane of its own: while one waits for its environments or its actions,
    the others compute, and their small kernels run side by side.
    """
    configs = [in_its_folder(check(config)) for config in configs]
    failures: list[SveaError] = []  # a run that fails or is stopped does not end the others
    with ExitStack() as stack:
        interrupt = stack.enter_context(interrupts())
        runs = []
        for number, config in enumerate(configs):
            with incidents.recorded(config.folder), speed.explained():
                trainer = open_trainer(config, stack, interrupt, len(configs))
            if trainer:
                runs.append((trainer, trainer.turns(), speed.lane(trainer.device, number)))
        for trainer, _, _ in runs:
            speed.synchronise(trainer.device)  # what was made so far was made outside the lanes
        while runs:
            runs = [run for run in runs if _take_turn(*run, failures)]
    if failures:
        raise failures[0]
    return [config.folder for config in configs]


def open_trainer(
    config: Config,
    stack: ExitStack,
    interrupt: Interrupt | None = None,
    runs_in_process: int = 1,
    learn_only: bool = False,
) -> Trainer | None:
    """The trainer of a run, new or continued; None if the run is finished already.

    Args:
        config: of the run.
        stack: what is opened here is closed with it.
        interrupt: whether a signal came, where several runs share the process.
        runs_in_process: how many runs share the process, and its memory.
        learn_only: neither evaluate nor save, to measure the loop alone.
    """
    saved = open_folder(config, stack)
    if saved and is_finished(config, saved):
        print(
            f"{config.folder} is finished ({saved.decision:,} decisions); a larger --decisions "
            "extends it"
        )
        return None
    return Trainer(config, saved, stack, interrupt, runs_in_process, learn_only)


def _take_turn(
    trainer: Trainer,
    turns: Iterator[None],
    lane: AbstractContextManager[object],
    failures: list[SveaError],
) -> bool:
    """One turn of one of several runs; False if it was the last."""
    try:
        with incidents.recorded(trainer.folder), speed.explained(), lane:
            for _ in turns:
                return True
        trainer.report_end()
    except SveaError as error:
        trainer.display.say(f"{trainer.display.prefix}{error}")
        failures.append(error)
    return False
