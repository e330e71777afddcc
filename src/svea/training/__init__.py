"""Training: one run, or several that take turns in one process. The loop itself is in `trainer`."""

import itertools
import sys
import traceback
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, closing, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from svea import speed
from svea.augment import augmentation
from svea.config import Config, check, configure
from svea.core.errors import Stopped, SveaError, UserError
from svea.core.given import Factory
from svea.core.terminal import note
from svea.runs.log import check_loggers
from svea.runs.records import recording_incidents
from svea.training.display import next_commands, run_names
from svea.training.resume import is_finished, open_folder, settle_renderer
from svea.training.trainer import Interrupt, Trainer, interrupts

Callback = Callable[[dict[str, Any]], bool | None]


def train(config: Config | str | Factory, callback: Callback | None = None, **options: Any) -> Path:
    """Train, or continue training, and return the run folder.

    Args:
        config: of the run; or its task, as `configure` takes it.
        callback: called with each line of metrics.jsonl as it is written: a dictionary with
            `kind` (train, eval, episode), `decision` and its values. If it returns False, the run
            saves and stops; what it raises ends the run.
        **options: of `configure`, where a task is given.

    Raises:
        Stopped: At Ctrl-C or a termination, with the run saved: a KeyboardInterrupt.

    Example:
        >>> run = train(configure("walker_walk", preset="quick"))  # doctest: +SKIP
        >>> run = train(make_my_env, preset="quick", out="runs/mine")  # doctest: +SKIP
    """
    if not isinstance(config, Config):
        config = configure(config, **options)
    elif options:
        raise UserError(
            f"{', '.join(options)} given next to a whole configuration; give them to configure"
        )
    config = check(config)
    with interrupts() as interrupt, closing(_in_turns(config, interrupt, callback=callback)) as run:
        for _ in run:
            pass
    return config.folder


def train_together(configs: Sequence[Config]) -> list[Path]:
    """Train several runs in one process, taking turns, and return their folders.

    They may differ in anything: seed, method, task, encoder. A run that fails does not end the
    others; its error is raised after them.
    """
    for error in filter(None, train_each(configs)):
        raise error
    return [config.folder for config in configs]


def train_each(
    configs: Sequence[Config], commands: Sequence[Sequence[str]] = ()
) -> list[Exception | Stopped | None]:
    """As `train_together`, but returns how each run ended: None, or the error that ended it.

    `commands` are what a user types to train each alone, if that is not this process's command.

    On a GPU each run has a lane of its own: while one waits for its environments or its actions,
    the others compute, and their small kernels run side by side. The next turn is always that of
    the run which has had the least share of its own, so that all end together: a GPU that several
    use best has them to the end.
    """
    configs = [check(config) for config in configs]
    on_gpu = (speed.choose_device(config.device).type == "cuda" for config in configs)
    speed.check_one_arithmetic((config.precision for config in configs), on_gpu)
    names = run_names(configs) if len(configs) > 1 else [""]
    errors: list[Exception | Stopped | None] = [None] * len(configs)
    with ExitStack() as stack:
        interrupt = stack.enter_context(interrupts())  # one clock and one signal for all
        runs = [
            _in_turns(config, interrupt, name, number, len(configs), command=command)
            for number, (config, name, command) in enumerate(
                zip(configs, names, commands or [()] * len(configs), strict=True)
            )
        ]
        for run in runs:
            stack.enter_context(closing(run))
        shares = dict.fromkeys(range(len(runs)), NOT_OPEN)
        while shares:
            number = min(shares, key=lambda one: shares[one])
            try:
                shares[number] = next(runs[number])
            except StopIteration:
                del shares[number]
            except (Exception, Stopped) as error:
                del shares[number]
                errors[number] = error
                _show_error(error, names[number])
    return errors


NOT_OPEN, STARTING, READY = -3.0, -2.0, -1.0
"""Shares of its turns that a run has had before the first, so that no run waits for another's
processes: all are started before the first is waited for."""


def _in_turns(
    config: Config,
    interrupt: Interrupt,
    name: str = "",
    number: int = 0,
    together: int = 1,
    callback: Callback | None = None,
    command: Sequence[str] = (),
) -> Generator[float, None, None]:
    """A run, a turn at a time: gives the share of its turns that it has had.

    What it holds, its processes and its memory, is free for others when it ends.
    """
    with recording_incidents(config.folder), speed.explained(), ExitStack() as stack:
        trainer = open_trainer(config, stack, interrupt, together, name=name, command=command)
        yield STARTING
        if trainer is None:
            return
        trainer.begin()
        if callback:
            trainer.log.listener = partial(_tell, callback, interrupt)
        speed.synchronise(trainer.device)  # what it did was not in its lane
        yield READY
        lane = speed.lane(trainer.device, number) if together > 1 else nullcontext()
        left = max((config.decisions - trainer.decision) / config.envs, 1)
        turns = trainer.turns()
        with trainer.display.show() if together == 1 else nullcontext():
            for turn in itertools.count(1):
                with lane:
                    if next(turns, "ended"):  # a turn gives None
                        break
                yield turn / left
        trainer.report_end()


def _tell(callback: Callback, interrupt: Interrupt, record: dict[str, Any]) -> None:
    """Give a line to the user's function, and stop if it says so."""
    if callback(record) is False:
        interrupt.by_callback = True


def _show_error(error: Exception | Stopped, name: str) -> None:
    """Print the error that ends one of several runs, named; the others continue."""
    if name:
        error.args = (f"{name}: {error}",)
    if isinstance(error, SveaError | Stopped):
        note(str(error))
    else:
        traceback.print_exception(error)


def open_trainer(
    config: Config,
    stack: ExitStack,
    interrupt: Interrupt,
    runs_in_process: int = 1,
    learn_only: bool = False,
    name: str = "",
    command: Sequence[str] = (),
) -> Trainer | None:
    """The trainer of a run, new or continued; None if the run is finished already.

    Its environments are starting: call its `begin` before anything else. What is opened is closed
    with the stack. Several runs of a process share an interrupt and its memory, and each has a
    name that stands before its lines. With `learn_only` it neither evaluates nor saves, to measure
    the loop. `command` is kept as what a user types to train it; default: this process's.
    """
    check_loggers(config)
    augmentation(config.augment)  # one that cannot be made is named before anything starts
    config = settle_renderer(config)
    saved = open_folder(config, stack, command)
    if saved and is_finished(config, saved):
        done = f"{config.folder} is finished ({saved.decision:,} decisions)"
        extends = "a larger --decisions extends it"
        sys.stdout.write(f"{done}; {extends}\n{next_commands(config)}\n")
        return None
    return Trainer(config, saved, stack, interrupt, runs_in_process, learn_only, name)
