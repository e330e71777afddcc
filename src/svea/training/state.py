"""What a run consists of: how it is begun, saved, and resumed bit for bit (on the CPU)."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Any

import numpy as np

from svea import speed
from svea.agents import make_agent, make_replay
from svea.agents.saving import restore_generator
from svea.augment.find import try_out
from svea.config import Config, milestones
from svea.core.errors import LARGEST, SveaError
from svea.core.seeds import TRAINING, episode_seed, seed_for
from svea.envs.workers.pool import OpenEpisode, Workers, environments_per_process, print_incident
from svea.replay.segments import counters
from svea.runs import checkpoint, footprint, incidents, layout, tensors
from svea.runs.load import read_config, write_export
from svea.runs.log import Accumulator, Log, Sink, TensorBoard, WeightsAndBiases
from svea.training import preflight, saved_state
from svea.training.display import Display
from svea.training.evaluators import Evaluators
from svea.training.interrupts import Interrupt, interrupts
from svea.training.rates import Rates
from svea.training.run_folder import record_pictures, record_renderer

NEVER = 2**62  # a decision that no run reaches
SETTLING = 10  # turns in which updates are compiled and captured


class TrainingState:
    """Environments, agent, replay, log and counters of a run that is begun or resumed."""

    decision: int  # made so far, by all environments
    updates: int
    owed_updates: int  # left from the warm-up
    next_evaluation: int  # the decision at which it is due, as for the next three
    next_export: int
    next_save: int
    next_log: int
    segments: list[dict[str, Any]]  # of the replay, already on disk

    def __init__(
        self,
        config: Config,
        saved: checkpoint.Checkpoint | None,
        stack: ExitStack,
        interrupt: Interrupt | None = None,
        runs_in_process: int = 1,
        learn_only: bool = False,
        name: str = "",
    ) -> None:
        """Start the environments' processes; `begin` waits for them.

        The arguments are those of `training.open_trainer`, and the checkpoint to continue from.
        """
        self.config, self.folder = config, config.folder
        self.started = time.monotonic()
        self.device = speed.choose_device(config.device)
        self.precision = speed.choose_precision(config.precision, self.device)
        self.speed = speed.choose_speed(config.speed, self.device)
        self.interrupt = interrupt or stack.enter_context(interrupts())
        start = saved.decision if saved else 0
        self.display = Display(
            f"svea · {config.task} · {config.method} · seed {config.seed}",
            config.decisions,
            config.action_repeat,
            start,
            name,
            steady=max(start, config.warmup) + SETTLING * config.envs,
        )
        self.environments = stack.enter_context(
            Workers(
                [config.environment] * config.envs,
                self.record_incident,
                environments_per_process(config.task, self.device.type),
                config.step_timeout,
                wait=False,
            )
        )
        self.evaluators = Evaluators(config, stack, self.record_incident, self.device)
        if config.eval_first and config.eval_every and not (saved or learn_only):
            self.evaluators.start()  # the run begins with an evaluation
        self._stack, self._saved = stack, saved
        self._runs_in_process, self._learn_only = runs_in_process, learn_only

    def begin(self) -> None:
        """Check memory and disk, wait for the environments, and resume if there is a checkpoint."""
        with self.display.waiting("starting the environments"):
            speed.warm_up(self.device)
            self.environments.wait()
        provenance = self.environments.provenance
        if warning := record_renderer(self.config, provenance, self._saved):
            self.display.say(warning)
        self._make_learner(self._runs_in_process)
        self.losses = Accumulator()
        self.random = np.random.default_rng(seed_for(self.config.seed, "warm-up"))  # its actions
        if self._saved:
            self._try_to_resume(self._saved)
        else:
            self._begin()
        self._plan_exports()
        if self._learn_only:
            self.next_evaluation = self.next_export = self.next_save = NEVER
        self.rates = Rates(self.updates, self.decision)
        self.log = Log(self.folder / layout.METRICS, self._log_offset, self._sinks())
        self._stack.callback(self.log.close)

    def _make_learner(self, runs_in_process: int) -> None:
        """Agent and replay, if they fit the environments, the memory and the disk."""
        config, actions = self.config, self.environments.action_size
        size = footprint.replay_bytes(config, actions)
        self.display.say(
            preflight.announcement(config, self.device, self.precision, self.speed, size)
        )
        preflight.check_actions(config, self.environments)
        try_out(config.augment, config.image_size, self.device)
        self.agent = make_agent(config, self.environments.choices or actions, self.device)
        if warning := record_pictures(config, self.agent.pictures, self._saved):
            self.display.say(warning)
        where = preflight.replay_device(
            config, size, self.device, runs_in_process, self.display.say
        )
        self.replay = make_replay(config, actions, where)
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
        preflight.check_disk(config, self.agent, size, runs_in_process)
        left = config.decisions - self.display.decision
        if warning := preflight.slow_warning(config, self.device, left * runs_in_process):
            self.display.say(warning)

    # Beginning and resuming --------------------------------------------------------------------

    def _begin(self) -> None:
        """Counters of a new run, and the first episode of every environment."""
        self.decision = self.updates = self.owed_updates = 0
        self.next_evaluation = 0
        if not (self.config.eval_first and self.config.eval_every):
            self.plan_evaluation()
        self.next_save, self.next_log = self.config.save_every, self.config.log_every
        self._log_offset, self.segments, self._seconds_before = 0, [], 0.0
        seeds = [episode_seed(self.config.seed, TRAINING, i, 0) for i in range(self.config.envs)]
        self.environments.reset(seeds)
        for index in range(self.config.envs):
            self.replay.begin(index, self.environments.observations[index, -3:])

    def _try_to_resume(self, saved: checkpoint.Checkpoint) -> None:
        """Resume; a checkpoint that is whole may still be of another version."""
        try:
            self._resume(saved)
        except SveaError:
            raise
        except tensors.DAMAGE as error:
            raise saved_state.unusable(self.folder, saved, error) from error

    def _resume(self, saved: checkpoint.Checkpoint) -> None:
        """Take over a checkpoint, and play every open episode up to where it was."""
        state = saved.state
        saved_state.check_episodes(state["episodes"], self.environments.action_size)
        self.decision, self.updates = saved.decision, state["updates"]
        self.owed_updates = state["owed_updates"]
        self.next_evaluation = state["next_evaluation"]
        # The run's end may have moved, or evaluations may have been switched off.
        if self.next_evaluation > self.decision or not self.config.eval_every:
            self.plan_evaluation()
        every = self.config.save_every, self.config.log_every  # they may have changed
        soonest = [(self.decision // interval + 1) * interval for interval in every]
        self.next_save = min(state["next_save"], soonest[0])
        self.next_log = min(state["next_log"], soonest[1])
        self._log_offset, self.segments = state["log_offset"], saved.segments
        self._seconds_before = state["seconds"]
        self.random.bit_generator.state = state["random"]
        self.losses.load_state(state["figures"], self.device)
        self.agent.load_state_dict(saved.agent)
        checkpoint.restore_replay(self.folder, saved, self.replay)
        checkpoint.remove_newer(self.folder, saved)
        ours = (self.agent.generator, self.replay.generator)
        theirs = (saved.agent["generator"], saved.agent["replay.generator"])
        if not all(restore_generator(*pair) for pair in zip(ours, theirs, strict=True)):
            self.display.say(
                "warning: the run comes from another device; from here on draws differ"
            )
        if state["speed"] != self.speed:
            self.display.say(
                f"warning: updates ran {state['speed']} before and run {self.speed} now (--speed); "
                "from here on the run differs from an uninterrupted one by rounding"
            )
        for index, episode in enumerate(state["episodes"]):
            self.environments.restore(index, OpenEpisode(**episode))
            newest = self.replay.newest_frame(index).numpy()
            if not np.array_equal(self.environments.observations[index, -3:], newest):
                self.display.say(
                    f"warning: environment {index} does not repeat its episode exactly, so this "
                    "run is not bit for bit an uninterrupted one (GPU renderers differ by a level)"
                )
        self.display.say(f"resumed at decision {self.decision:,}")

    # Saving and logging ------------------------------------------------------------------------

    @property
    def is_worth_saving(self) -> bool:
        """Whether a checkpoint is of use: one without decisions and without replay is not."""
        return self.config.save_replay or self.decision > 0

    @property
    def what_is_left(self) -> str:
        """Of a run that stops here: where it is saved, and what its command does next."""
        saved, then = "saved", "the same command continues"
        if not self.is_worth_saving:
            saved, then = "not saved", "the same command begins it again"
        elif not self.config.save_replay:
            then = "without its replay it cannot be continued"
        return f"{saved} at decision {self.decision:,} in {self.folder}; {then}"

    def save(self) -> None:
        """A checkpoint from which the run continues."""
        if not self.is_worth_saving:
            return
        with self.rates.paused():
            self.display.progress(self.decision, "saving")
            self.next_save = (self.decision // self.config.save_every + 1) * self.config.save_every
            generator = self.replay.generator.get_state()
            tensors = self.agent.state_dict() | {"replay.generator": generator}
            replay = self.replay if self.config.save_replay else None
            self.segments = checkpoint.save(
                self.folder, self.decision, tensors, self._state(), replay, self.segments
            )

    def export(self) -> None:
        """Keep the agent as it is now, for evaluations; the run continues."""
        with self.rates.paused():
            self.agent.decision = self.decision
            folder = layout.export_folder(self.folder, self.next_export)
            write_export(folder, self.agent, read_config(self.folder))
            self.display.stay(f"the agent is kept in {folder}")
            self.next_export = next((m for m in self._milestones if m > self.decision), NEVER)

    def _plan_exports(self) -> None:
        """The next export; one that a resumed run has passed cannot be made any more."""
        self._milestones = milestones(self.config.export_at)
        kept = [
            m for m in self._milestones if layout.is_export(layout.export_folder(self.folder, m))
        ]
        for passed in (m for m in self._milestones if m < self.decision and m not in kept):
            self.display.say(
                f"warning: the run is past decision {passed:,}, so export_at cannot keep its agent"
            )
        due = (
            m
            for m in self._milestones
            if m > self.decision or (m == self.decision and m not in kept)
        )
        self.next_export = next(due, NEVER)

    def _state(self) -> dict[str, Any]:
        """Everything that draws or counts, except tensors."""
        return {
            "speed": self.speed,
            "updates": self.updates,
            "owed_updates": self.owed_updates,
            "next_evaluation": self.next_evaluation,
            "next_save": self.next_save,
            "next_log": self.next_log,
            "log_offset": self.log.offset,
            "seconds": self.seconds,
            "random": self.random.bit_generator.state,
            "figures": self.losses.state(),
            "episodes": [vars(episode) for episode in self.environments.episodes],
            "replay": counters(self.replay) if self.config.save_replay else None,
        }

    @property
    def seconds(self) -> float:
        """Wall time of the run, earlier parts included."""
        return self._seconds_before + time.monotonic() - self.started

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
        incidents.record(self.folder, **incident)

    def plan_evaluation(self) -> None:
        """The next evaluation comes at a multiple of eval_every, or at the run's end; or never."""
        if not self.config.eval_every:
            self.next_evaluation = self.decision + LARGEST
            return
        regular = (self.decision // self.config.eval_every + 1) * self.config.eval_every
        self.next_evaluation = min(regular, max(self.config.decisions, self.decision + 1))

    def _sinks(self) -> list[Sink]:
        """The loggers that were asked for."""
        sinks: list[Sink] = []
        if self.config.tensorboard:
            sinks.append(TensorBoard(self.folder, self.decision))
        if self.config.wandb or self.config.wandb_project:
            sinks.append(WeightsAndBiases(self.folder, self.config))
        return sinks
