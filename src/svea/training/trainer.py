"""The training loop: act, step, learn, store, log, evaluate, save.

`Trainer.turns` is the whole of it. While the environments carry out the actions, in processes of
their own, the learner makes an update for each of these decisions.
"""

import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import numpy as np

from svea import speed
from svea.agents import learning, make_agent, make_replay
from svea.augment.registry import try_out
from svea.config import Config, milestones, seconds
from svea.config.options import FRAMES
from svea.core import process
from svea.core.errors import LARGEST, NumericsError, Stopped, UserError
from svea.core.seeds import TRAINING, episode_seed, seed_for
from svea.core.terminal import note
from svea.envs.workers.pool import Step, Workers, environments_per_process, print_incident
from svea.evaluation.play import Interrupted
from svea.runs import checkpoint, layout
from svea.runs.load import read_config, write_export
from svea.runs.log import Accumulator, Log, Rates, loggers
from svea.runs.records import record_incident
from svea.training import preflight, resume
from svea.training.display import Display
from svea.training.evaluators import Evaluators, target_variance

NEVER = 2**62  # a decision that no run reaches


class Interrupt:
    """Whether SIGINT or SIGTERM came, or the time is up; shared by all runs of a process."""

    signal_number: int | None = None
    by_callback = False

    def __init__(self) -> None:
        """Count time from here on."""
        self._began = time.monotonic()

    def must_stop(self, time_limit: str) -> bool:
        """Whether a signal came, a callback asked for it, or the time is up."""
        if self.signal_number is not None or self.by_callback:
            return True
        return time.monotonic() - self._began > seconds(time_limit)

    def handle(self, number: int) -> None:
        """Remember the first signal."""
        self.signal_number = number
        note(
            "\nstopping: saving the run first (once more: stop at once and lose what came after "
            "the last checkpoint)"
        )


@contextmanager
def interrupts() -> Iterator[Interrupt]:
    """Catch SIGINT and SIGTERM for a while; the second one ends the process at once."""
    caught = Interrupt()
    with process.on_signals((signal.SIGINT, signal.SIGTERM), caught.handle, process.interrupt):
        yield caught


class Trainer:
    """A run that is begun or resumed: its environments, agent, replay, log and counters."""

    def __init__(
        self,
        config: Config,
        saved: checkpoint.Checkpoint | None,
        stack: ExitStack,
        interrupt: Interrupt,
        runs_in_process: int,
        learn_only: bool,
        name: str,
    ) -> None:
        """Start the environments' processes, which `begin` waits for.

        The checkpoint is the one to continue from, the others are as in `training.open_trainer`.
        """
        self.config, self.folder = config, config.folder
        self.interrupt, self._stack, self._saved = interrupt, stack, saved
        self._runs_in_process, self._learn_only = runs_in_process, learn_only
        self.started = time.monotonic()
        self.device = speed.choose_device(config.device)
        self.precision = speed.choose_precision(config.precision, self.device)
        self.speed = speed.choose_speed(config.speed, self.device)
        self.display = Display(config, saved.decision if saved else 0, name)
        self.environments = stack.enter_context(
            Workers(
                [config.training_environment] * config.envs,
                self.record_incident,
                environments_per_process(config.task, self.device.type),
                config.step_timeout,
                wait=False,
            )
        )
        self.evaluators = Evaluators(config, stack, self.record_incident, self.device)
        if config.eval_first and config.eval_every and not (saved or learn_only):
            self.evaluators.start()  # the run begins with an evaluation

    def begin(self) -> None:
        """Check memory and disk, wait for the environments, and resume if there is a checkpoint."""
        with self.display.waiting("starting the environments"):
            speed.warm_up(self.device)
            self.environments.wait()
        self._make_learner()
        self.losses = Accumulator()
        self.random = np.random.default_rng(seed_for(self.config.seed, "warm-up"))  # its actions
        if self._saved:
            resume.take_over(self, self._saved)
        else:
            self._begin()
        self._plan_exports()
        if self._learn_only:
            self.next_evaluation = self.next_export = self.next_save = NEVER
        self.rates = Rates(self.updates, self.decision)
        sinks = loggers(self.config, self.decision)
        self.log = Log(self.folder / layout.METRICS, self.log_offset, sinks)
        self._stack.callback(self.log.close)

    def _make_learner(self) -> None:
        """Agent and replay, if they fit the environments, the memory and the disk."""
        config, environments, say = self.config, self.environments, self.display.say
        parts = environments.parts
        size = layout.replay_bytes(config, environments.action_size, parts)
        say(preflight.announcement(config, self.device, self.precision, self.speed, size, parts))
        preflight.check_actions(config, environments)
        channels = 3 * FRAMES * (parts.count if config.shared_draws else 1)
        try_out(config.augment, config.image_size, self.device, channels)
        actions = environments.choices or environments.action_size
        self.agent = make_agent(config, actions, self.device, parts=parts)
        say(resume.record_circumstances(self.agent, config, environments.provenance, self._saved))
        together = self._runs_in_process
        where = preflight.replay_device(config, size, self.device, together, say)
        self.replay = make_replay(config, environments.action_size, where, parts=parts)
        self.learner = speed.Learner(
            self.agent,
            self.replay,
            config.batch_size,
            precision=self.precision,
            exact=config.precision == speed.EXACT,
            speed=self.speed,
            deterministic=config.deterministic,
            say=self.display.line,
        )
        preflight.check_disk(config, self.agent, size, together)
        left = (config.decisions - self.display.decision) * together
        say(preflight.slow_warning(config, self.device, left, parts.count))

    def _begin(self) -> None:
        """Counters of a new run, and the first episode of every environment.

        What comes next follows from the decision at which it is due.
        """
        self.decision = 0  # made so far, by all environments
        self.updates = self.owed_updates = self.next_evaluation = 0  # owed: left from the warm-up
        if not (self.config.eval_first and self.config.eval_every):
            self.plan_evaluation()
        self.next_save, self.next_log = self.config.save_every, self.config.log_every
        self.log_offset, self.seconds_before = 0, 0.0
        self.segments: list[dict[str, Any]] = []  # of the replay, already on disk
        seeds = [episode_seed(self.config.seed, TRAINING, i, 0) for i in range(self.config.envs)]
        self.environments.reset(seeds)
        for index in range(self.config.envs):
            self.replay.begin(index, *self.newest(self.environments.observations, index))

    # The loop --------------------------------------------------------------------------------

    def turns(self) -> Iterator[None]:
        """The run, a turn at a time: between turns other runs can have theirs."""
        while True:
            if self.decision >= self.next_evaluation:
                self.evaluate()
            if self.decision >= self.next_export:
                self.export()
            if self.decision >= self.config.decisions or self.must_stop():
                break
            if self.decision >= self.next_save:
                self.save()
            if self.owed_updates:
                self.catch_up()
                continue
            actions = self.choose_actions()
            self.environments.send(actions, self.next_seeds())
            self.learn()  # while the environments carry out the actions
            yield
            self.store(actions, self.receive())
            self.report()
        self.save()

    def choose_actions(self) -> np.ndarray:
        """One action per environment: random in the warm-up, then from the policy."""
        if self.decision < self.config.warmup:
            size = (len(self.environments), self.environments.action_size)
            if self.environments.choices:
                return self.random.integers(self.environments.choices, size=size).astype(np.float32)
            return self.random.uniform(-1, 1, size).astype(np.float32)
        self.agent.decision = self.decision
        with self.acting():
            return self.agent.act(self.environments.observations, explore=True)

    @contextmanager
    def acting(self) -> Iterator[None]:
        """The region in which actions are computed: the updates' precision, nothing compiled."""
        with (
            speed.precision_context(self.device, self.precision),
            speed.uncompiled(self.speed, self.device),
        ):
            yield

    def next_seeds(self) -> list[int]:
        """The seed of each environment's next episode, should this one end."""
        return [
            episode_seed(self.config.seed, TRAINING, index, episode.number + 1)
            for index, episode in enumerate(self.environments.episodes)
        ]

    def learn(self) -> None:
        """An update for each decision under way; none in the warm-up.

        Which it is follows from the decision, so a resumed run makes the same ones.
        """
        for decision in range(self.decision, self.decision + len(self.environments)):
            if decision >= self.config.warmup:
                self.make_update(decision)

    def catch_up(self) -> None:
        """The updates that the warm-up left owing, all at once, policy and target in each.

        As in the reference, whose 1,000th decision is even. They can be interrupted at any of
        them: how many are still owed is part of a checkpoint.
        """
        while self.owed_updates and not self.must_stop():
            self.make_update(self.agent.last_whole_update(self.config.warmup))
            self.owed_updates -= 1
            self.display.progress(self.decision, f"warm-up: {self.owed_updates:,} updates to go")

    def make_update(self, decision: int) -> None:
        """One update on one batch."""
        losses = self.learner.step(decision)
        learning.check_update(self.agent, losses)
        self.losses.add(losses)
        self.updates += 1

    def receive(self) -> list[Step]:
        """Wait for the environments; if one shows what no agent can learn from, save the run."""
        try:
            return self.environments.receive()
        except (NumericsError, UserError) as error:
            if not self._learn_only:
                self.save()  # before this decision, which a continued run makes again
                saved = f"the run is saved at decision {self.decision:,}"
                error.args = (f"{str(error).rstrip('.')}; {saved}",)
            raise

    def newest(self, observations: np.ndarray, index: int) -> tuple[np.ndarray, np.ndarray | None]:
        """The newest frame that an environment showed, and the vector with it."""
        return self.environments.parts.newest(observations[index])

    def store(self, actions: np.ndarray, steps: list[Step]) -> None:
        """Put what happened into the replay; log episodes that ended."""
        before = self.decision
        for index, step in enumerate(steps):
            seen = self.environments.finals if step.done else self.environments.observations
            frame, vector = self.newest(seen, index)
            self.replay.append(
                index, actions[index], step.reward, step.terminated, frame, step.done, vector
            )
            self.decision += 1
            if step.done:
                self._log_episode(index, step)
                self.replay.begin(index, *self.newest(self.environments.observations, index))
        self.replay.flush()  # now, while a GPU still works on updates that were started before
        if before < self.config.warmup <= self.decision:
            self.owed_updates = self.config.warmup - 1  # the decision that follows makes its own

    def _log_episode(self, index: int, step: Step) -> None:
        """One line for an episode that ended."""
        total, length = step.episode.total, len(step.episode.actions)
        told = ("physics_error", *["mode"] * ("," in self.config.train_mode))  # of a mixture
        about = {k: v for k, v in step.info.items() if k in told}
        self.write_log("episode", env=index, length=length, **{"return": total}, **about)
        self.display.progress(self.decision, values={"last_episode": round(total, 1)})

    def evaluate(self) -> None:
        """Whole episodes in train and in the test mode, and a log line for each mode."""
        self.agent.decision = self.decision  # exploration schedules depend on it
        played: dict[str, dict[str, Any]] = {}
        with self.rates.paused():
            try:
                show = partial(self.display.progress, self.decision)
                for mode in self.evaluators.modes:
                    with self.acting():
                        played[mode] = self.evaluators.play(mode, self.agent, self.must_stop, show)
            except Interrupted:
                return  # it is still due, and the resumed run begins with it
            with speed.uncompiled(self.speed, self.device):
                played["train"] |= target_variance(
                    self.agent, self.replay, self.config.seed, self.decision
                )
            for mode, values in played.items():
                self.write_log("eval", mode=mode, **values)
            means = {mode: values["return_mean"] for mode, values in played.items()}
            self.display.evaluation(self.decision, means, self.config.eval_episodes)
            self.plan_evaluation()

    def report(self) -> None:
        """Write the mean losses since the last log line: the one device synchronisation."""
        if self.decision < self.next_log:
            self.display.progress(self.decision)
            return
        self.next_log = self.next_multiple(self.config.log_every)
        rates = self.rates.take(self.updates, self.decision)
        losses, rate = self.losses.take(), rates["updates_per_second"]
        if losses:
            self.write_log("train", **losses, **rates)
        self.display.progress(self.decision, values=losses | {"updates_per_second": rate})
        pace = f"{rate:.1f} updates/s" if self.updates else "warming up"
        last = self.display.values.get("last_episode")
        self.display.line(pace if last is None else f"last return {last:,.1f}  {pace}")

    def must_stop(self) -> bool:
        """Whether a signal came or the time is up."""
        return self.interrupt.must_stop(self.config.time_limit)

    def report_end(self) -> None:
        """The last line: done, out of time, or interrupted."""
        if self.decision >= self.config.decisions and self.next_evaluation > self.decision:
            self.display.done()
            return
        lost = "without its replay it cannot be continued"
        then = "the same command continues" if self.config.save_replay else lost
        where = f"saved at decision {self.decision:,} in {self.folder}; {then}"
        if self.interrupt.signal_number is not None:
            raise Stopped(self.interrupt.signal_number, where)
        why = "callback" if self.interrupt.by_callback else "time limit"
        self.display.say(f"{why}: {where}")

    # Saving and logging ------------------------------------------------------------------------

    def save(self) -> None:
        """A checkpoint from which the run continues."""
        with self.rates.paused():
            self.display.progress(self.decision, "saving")
            self.next_save = self.next_multiple(self.config.save_every)
            generator = self.replay.generator.get_state()
            tensors = self.agent.state_dict() | {"replay.generator": generator}
            replay = self.replay if self.config.save_replay else None
            self.segments = checkpoint.save(
                self.folder, self.decision, tensors, resume.state_of(self), replay, self.segments
            )

    def export(self) -> None:
        """Keep the agent as it is now, for evaluations; the run continues."""
        with self.rates.paused():
            self.agent.decision = self.decision
            folder = layout.export_folder(self.folder, self.next_export)
            write_export(folder, self.agent, read_config(self.folder))
            self.display.line(f"the agent is kept in {folder}", stays=True)
            self.next_export = min((m for m in self._exports if m > self.decision), default=NEVER)

    def _plan_exports(self) -> None:
        """The exports to come; one that a resumed run has passed cannot be made any more."""
        moments = milestones(self.config.export_at)
        left = [m for m in moments if not layout.is_export(layout.export_folder(self.folder, m))]
        for passed in (m for m in left if m < self.decision):
            self.display.say(
                f"warning: the run is past decision {passed:,}, so export_at cannot keep its agent"
            )
        self._exports = [m for m in moments if m > self.decision or m in left]
        self.next_export = min((m for m in self._exports if m >= self.decision), default=NEVER)

    @property
    def seconds(self) -> float:
        """Wall time of the run, earlier parts included."""
        return self.seconds_before + time.monotonic() - self.started

    def write_log(self, kind: str, **values: Any) -> None:
        """A log line with decisions, frames and seconds."""
        frame = self.decision * self.config.action_repeat
        self.log.write(
            kind, decision=self.decision, frame=frame, seconds=round(self.seconds, 3), **values
        )

    def record_incident(self, incident: dict[str, Any]) -> None:
        """A worker failed, or a simulation diverged, and the run recovered."""
        named = f"{self.display.name}: " if self.display.name else ""
        print_incident(incident | {"cause": f"{named}{incident['cause']}"})
        record_incident(self.folder, **incident)

    def plan_evaluation(self) -> None:
        """The next evaluation comes at a multiple of eval_every, or at the run's end; or never."""
        self.next_evaluation = self.decision + LARGEST
        if every := self.config.eval_every:
            end = max(self.config.decisions, self.decision + 1)
            self.next_evaluation = min(self.next_multiple(every), end)

    def next_multiple(self, interval: int) -> int:
        """The next decision that is a multiple of an interval."""
        return (self.decision // interval + 1) * interval
