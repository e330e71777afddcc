"""Training: one run, or several that take turns in one process. The loop itself is in `trainer`."""

from __future__ import annotations

import itertools
import math
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from svea import speed
from svea.augment import augmentation
from svea.config import Config, check, configure
from svea.config.names import own_modules
from svea.core.errors import Stopped, SveaError, UserError
from svea.core.given import Factory
from svea.core.terminal import note
from svea.runs.records import recording_incidents
from svea.training.display import next_commands, run_names
from svea.training.loggers import check_loggers
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
    with recording_incidents(config.folder), speed.explained(), ExitStack() as stack:
        interrupt = stack.enter_context(interrupts())
        if trainer := open_trainer(config, stack, interrupt):
            trainer.begin()
            trainer.log.listener = partial(_tell, callback, interrupt) if callback else None
            trainer.run()
    return config.folder


def _tell(callback: Callback, interrupt: Interrupt, record: dict[str, Any]) -> None:
    """Give a line to the user's function, and stop if it says so."""
    if callback(record) is False:
        interrupt.by_callback = True


def train_together(configs: Sequence[Config]) -> list[Path]:
    """Train several runs in one process, taking turns, and return their folders.

    They may differ in anything: seed, method, task, encoder. A run that fails does not end the
    others; its error is raised after them.
    """
    for error in filter(None, train_each(configs)):
        raise error
    return [config.folder for config in configs]


def train_each(configs: Sequence[Config]) -> list[Exception | Stopped | None]:
    """As `train_together`, but returns how each run ended: None, or the error that ended it.

    On a GPU each run has a lane of its own: while one waits for its environments or its actions,
    the others compute, and their small kernels run side by side. A run of twice the length has
    twice as many turns, so that all end together: a GPU that several use best has them to the end.
    """
    configs = [check(config) for config in configs]
    _check_one_arithmetic(configs)
    names = run_names(configs) if len(configs) > 1 else [""]
    runs = [_Turns(config, name) for config, name in zip(configs, names, strict=True)]
    with ExitStack() as stack:
        interrupt = stack.enter_context(interrupts())  # one clock and one signal for all
        for number, run in enumerate(runs):
            stack.push(run.opened)
            run.open(interrupt, len(configs), number)
        for run in runs:
            run.begin()  # the processes of all have been started: no run waits for another's
        _take_turns(runs)
    return [run.error for run in runs]


def _take_turns(runs: Sequence[_Turns]) -> None:
    """Let runs take turns until the last has ended, as often as each has decisions left to make."""
    longest = max((run.turns_left for run in runs), default=1)
    active = {run: (run.turns_left / longest, n / len(runs)) for n, run in enumerate(runs)}
    for round_ in itertools.count():
        for run, (share, phase) in list(active.items()):
            if is_due(round_, share, phase) and not run.take_turn():
                del active[run]
        if not active:
            return


def is_due(round_: int, share: float, phase: float) -> bool:
    """Whether a run has a turn in this round (from 0), if it has one in a share of all of them.

    They are evenly spaced. The phase, 0 to 1, is by how much of the distance between two turns it
    is ahead; runs of the same share differ in it, or all of them would want the same round.

    >>> [[int(is_due(round_, 0.4, phase)) for round_ in range(5)] for phase in (0, 0.5)]
    [[0, 0, 1, 0, 1], [0, 1, 0, 1, 0]]
    """
    return math.floor((round_ + 1) * share + phase) > math.floor(round_ * share + phase)


def _check_one_arithmetic(configs: Sequence[Config]) -> None:
    """Refuse runs that would change each other's products: a process has one way on a GPU."""
    exact = [config for config in configs if config.precision == speed.EXACT]
    is_mixed = 0 < len(exact) < len(configs)
    if is_mixed and any(speed.choose_device(c.device).type == "cuda" for c in exact):
        raise UserError(
            f"runs with --precision {speed.EXACT} and with another cannot share a process on a "
            "GPU; train them one after the other"
        )


def open_trainer(
    config: Config,
    stack: ExitStack,
    interrupt: Interrupt,
    runs_in_process: int = 1,
    learn_only: bool = False,
    name: str = "",
) -> Trainer | None:
    """The trainer of a run, new or continued; None if the run is finished already.

    Its environments are starting: call its `begin` before anything else. What is opened is closed
    with the stack. Several runs of a process share an interrupt and its memory, and each has a
    name that stands before its lines. With `learn_only` it neither evaluates nor saves, to measure
    the loop.
    """
    check_loggers(config)
    augmentation(config.augment)  # one that cannot be made is named before anything starts
    config = settle_renderer(config)
    saved = open_folder(config, stack)
    if saved and is_finished(config, saved):
        then = next_commands(config.folder, config.task, own_modules(vars(config)))
        done = f"{config.folder} is finished ({saved.decision:,} decisions)"
        sys.stdout.write(f"{done}; a larger --decisions extends it\n{then}\n")
        return None
    return Trainer(config, saved, stack, interrupt, runs_in_process, learn_only, name)


class _Turns:
    """One of several runs that take turns in a process."""

    def __init__(self, config: Config, name: str) -> None:
        self.config, self.name = config, name
        self.opened = ExitStack()
        self.trainer: Trainer | None = None
        self.error: Exception | Stopped | None = None

    def open(self, interrupt: Interrupt, runs_in_process: int, number: int) -> None:
        """Start the trainer, unless the run is finished already or refused."""
        with self._keeping_error():
            self.trainer = open_trainer(
                self.config, self.opened, interrupt, runs_in_process, name=self.name
            )
        if self.trainer:
            self._turns, self._lane = self.trainer.turns(), speed.lane(self.trainer.device, number)

    def begin(self) -> None:
        """Wait until its environments are ready."""
        if self.trainer:
            with self._keeping_error():
                self.trainer.begin()
                speed.synchronise(self.trainer.device)  # what it did was not in its lane

    @property
    def turns_left(self) -> float:
        """How many turns it has before it, at least one, in which it ends."""
        if self.trainer is None:
            return 1
        left = self.config.decisions - self.trainer.decision
        return max(left / self.config.envs, 1)

    def take_turn(self) -> bool:
        """One turn; False if the run has ended."""
        if self.trainer is None:
            return False
        with self._keeping_error():
            with self._lane:
                for _ in self._turns:
                    return True
            self.trainer.report_end()
        self.trainer = None
        self.opened.close()  # its processes and its memory are free for the others
        return False

    @contextmanager
    def _keeping_error(self) -> Iterator[None]:
        """Print and keep the error that ends this run, so that the others continue."""
        try:
            with recording_incidents(self.config.folder), speed.explained():
                yield
        except (Exception, Stopped) as error:
            self.trainer, self.error = None, error
            self.opened.__exit__(type(error), error, error.__traceback__)
            if self.name:
                error.args = (f"{self.name}: {error}",)
            if isinstance(error, SveaError | Stopped):
                note(str(error))
            else:
                traceback.print_exc()
