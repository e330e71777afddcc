"""The training loop: act, step, learn, store, log, evaluate, save.

`Trainer.run` is the whole of it. While the environments carry out the decisions, in processes of
their own, the learner makes the updates that these decisions pay for: one each, as in the paper.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from svea import __version__, envs, files, machine, speed
from svea.agents import finite, make_agent
from svea.agents.diagnostics import q_target_variance
from svea.agents.saving import restore_generator
from svea.config import Config, check, differences, seconds, to_dict
from svea.config.shapes import replay_bytes
from svea.envs import rendering
from svea.envs.workers.pool import DRAWN_TOGETHER, Step, Workers, print_incident
from svea.errors import StorageError, SveaError, UserError
from svea.evidence import evaluation
from svea.replay import Replay
from svea.replay.segments import counters
from svea.runs import checkpoint, incidents, layout, lock
from svea.runs.load import ABOUT, read_config
from svea.runs.log import Accumulator, Log, Sink, TensorBoard, WeightsAndBiases
from svea.seeds import TRAINING, episode_seed, evaluation_seeds, seed_for
from svea.training.display import Display


class Stopped(SveaError):
    """Training was asked to stop; the run is saved and the same command continues it."""

    def __init__(self, signal_number: int, folder: Path, decision: int) -> None:
        super().__init__(
            f"stopped and saved at decision {decision:,} in {folder}; the same command continues"
        )
        self.exit_code = 128 + signal_number


def train(config: Config) -> Path:
    """Train, or continue training, and return the run folder.

    Example:
        >>> run = train(configure("walker_walk", preset="quick"))  # doctest: +SKIP
    """
    check(config)
    with ExitStack() as stack:
        stack.enter_context(incidents.recorded(config.folder))
        stack.enter_context(speed.explained())
        trainer = Trainer(config, stack)
        trainer.run()
    return config.folder


def train_together(configs: list[Config]) -> list[Path]:
    """Train several runs, e.g. seeds of one configuration, in one process, taking turns.

    On a GPU each run has a lane of its own: while one waits for its environments or its actions,
    the others compute, and their small kernels run side by side.
    """
    for config in configs:
        check(config)
    endings: list[SveaError] = []  # a run that fails or is stopped does not take the others down
    with ExitStack() as stack:
        interrupt = stack.enter_context(interrupts())
        runs: list[tuple[Trainer, Iterator[None], Any]] = []
        for number, config in enumerate(configs):
            with incidents.recorded(config.folder), speed.explained():
                trainer = Trainer(config, stack, interrupt, len(configs))
            if not trainer.finished_before:
                runs.append((trainer, trainer.turns(), speed.lane(trainer.device, number)))
        for trainer, _, _ in runs:
            speed.synchronise(trainer.device)  # what they were made with was made outside
        while runs:
            runs = [run for run in runs if take_turn(*run, endings)]
    if endings:
        raise endings[0]
    return [config.folder for config in configs]


def take_turn(
    trainer: Trainer, turns: Iterator[None], stream: Any, endings: list[SveaError]
) -> bool:
    """One turn of one of several runs; False if it was the last."""
    try:
        with incidents.recorded(trainer.folder), speed.explained(), stream:
            if next(turns, STOPPED) is not STOPPED:
                return True
        trainer.say_how_it_ended()
    except SveaError as error:
        trainer.display.say(f"{trainer.display.prefix}{error}")
        endings.append(error)
    return False


VARIANCE_BATCH, VARIANCE_DRAWS = 64, 8  # transitions and views of each, at every evaluation
STOPPED = object()  # what an iterator without more turns gives


class EpisodeInProgress:
    """An environment's open episode: its seed and actions are all it takes to play it again."""

    def __init__(self, number: int, seed: int) -> None:
        self.number, self.seed = number, seed
        self.actions: list[list[float]] = []
        self.total = 0.0

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return vars(self)

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> EpisodeInProgress:
        """From a checkpoint."""
        episode = cls(state["number"], state["seed"])
        episode.actions, episode.total = state["actions"], state["total"]
        return episode


class Trainer:
    """The state of a run, and the loop over it."""

    decision: int  # made so far, by all environments
    updates: int
    owed_updates: int  # left from the warm-up
    next_evaluation: int  # each of these clocks is the decision at which it rings
    next_save: int
    next_log: int
    log_offset: int
    segments: list[dict[str, Any]]  # of the replay, already on disk
    episodes: list[EpisodeInProgress]  # one per environment
    _last_report: float  # rates in the log are measured from here
    _reported_updates: int
    _reported_decision: int

    def __init__(
        self,
        config: Config,
        stack: ExitStack,
        interrupt: Interrupt | None = None,
        together: int = 1,
    ) -> None:
        """Check the folder and the memory, start the environments, and resume if there is a run.

        Args:
            config: of the run.
            stack: what is entered here is left when the stack is closed.
            interrupt: whether a signal came, where several runs share the process.
            together: how many runs share the process, and its memory.
        """
        self.config = config
        self.folder = config.folder
        self.started = time.monotonic()
        self.device = speed.choose_device(config.device)
        self.precision = speed.choose_precision(config.precision, self.device)
        self.speed = speed.choose_speed(config.speed, self.device)
        self._stack = stack
        saved = self._open_folder()
        self.interrupt = interrupt or stack.enter_context(interrupts())
        self.together = together
        self.display = Display(
            f"svea · {config.task} · {config.method} · seed {config.seed}",
            config.decisions,
            config.action_repeat,
            saved.decision if saved else 0,
            f"seed {config.seed}: " if together > 1 else "",
        )
        self.evaluators: dict[str, Workers] = {}
        finished = saved is not None and saved.decision >= config.decisions
        if finished and saved and saved.state.get("next_evaluation", 0) > saved.decision:
            self.finished_before = True
            self.display.say(
                f"{self.folder} is finished ({saved.decision:,} decisions); a larger --decisions "
                "extends it"
            )
            return
        self.finished_before = False
        self.environments = stack.enter_context(
            Workers([config.environment] * config.envs, self._note, self._drawn_together())
        )
        self._announce()
        self._check_actions()
        choices = self.environments.choices
        self.agent = make_agent(config, choices or self.environments.action_size, self.device)
        self.replay = Replay(
            self.config.replay_capacity,
            config.rendered_size,
            self.environments.action_size,
            config.envs,
            config.episode_length,
            self._replay_device(),
            seed_for(config.seed, "replay"),
            discount=config.options.discount,
            n_step=config.options.n_step,
        )
        self.learner = speed.Learner(
            self.agent,
            self.replay,
            config.batch_size,
            precision=self.precision,
            speed=self.speed,
            deterministic=config.deterministic,
            say=self.display.line,
        )
        self._check_disk()
        self.figures = Accumulator()
        self.random = np.random.default_rng(seed_for(config.seed, "warm-up"))  # its actions
        if saved:
            self._try_to_resume(saved)
        else:
            self._begin()
        sinks = self._sinks()
        self.log = Log(self.folder / layout.METRICS, self.log_offset, sinks)
        stack.callback(self.log.close)

    # The loop ----------------------------------------------------------------------------------

    def run(self) -> None:
        """Train until the last decision, the time limit, or an interrupt; save in any case."""
        if self.finished_before:
            return
        with self.display.show():
            for _ in self.turns():
                pass
        self.say_how_it_ended()

    def turns(self) -> Iterator[None]:
        """The run, a turn at a time: between turns other runs can have theirs."""
        while True:
            if self.decision >= self.next_evaluation:
                self.evaluate()
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
            self.store(actions, self.environments.receive())
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
        """Each environment's next episode, should this one end."""
        return [
            episode_seed(self.config.seed, TRAINING, index, episode.number + 1)
            for index, episode in enumerate(self.episodes)
        ]

    def learn(self) -> None:
        """One update per decision under way; none in the warm-up."""
        for decision in range(self.decision, self.decision + len(self.environments)):
            if decision >= self.config.warmup:
                self.update(decision)

    def catch_up(self) -> None:
        """The updates that the warm-up left owing, all at once (as the reference does).

        They can be interrupted at any of them: how many are still owed is part of a checkpoint.
        """
        while self.owed_updates and not self.must_stop():
            self.update(self.config.warmup)
            self.owed_updates -= 1
            self.display.progress(self.decision, f"warm-up: {self.owed_updates:,} updates to go")

    def update(self, decision: int) -> None:
        """One update on one batch."""
        losses = self.learner.step(decision)
        finite.check_update(self.agent, losses)
        self.figures.add(losses)
        self.updates += 1

    def store(self, actions: np.ndarray, steps: list[Step]) -> None:
        """Put what happened into the replay; log episodes that ended."""
        before = self.decision
        for index, step in enumerate(steps):
            episode = self.episodes[index]
            episode.actions.append([float(value) for value in actions[index]])
            episode.total += step.reward
            seen = self.environments.finals if step.done else self.environments.observations
            self.replay.append(
                index, actions[index], step.reward, step.terminated, seen[index, -3:], step.done
            )
            self.decision += 1
            if step.done:
                self._end_episode(index, episode, step)
        self.replay.flush()  # now, while a GPU still works on updates that were started before
        if before < self.config.warmup <= self.decision:
            self.owed_updates = self.config.warmup - 1  # the decision that follows makes one more

    def evaluate(self) -> None:
        """Whole episodes in train and in the test mode."""
        config, began = self.config, time.monotonic()
        self.agent.decision = self.decision  # schedules of exploration go by it
        results: dict[str, list[evaluation.Episode]] = {}
        try:
            for mode in dict.fromkeys(("train", config.eval_mode)):
                self.display.progress(self.decision, f"evaluating in {mode}")
                workers = self._evaluator(mode)
                worlds = workers.provenance.get("worlds", 1)
                seeds = evaluation_seeds(config.seed, config.eval_episodes, worlds)
                with self.acting():
                    policy = evaluation.agent_policy(self.agent, config)
                    results[mode] = evaluation.play(policy, workers, seeds, self.must_stop)
        except evaluation.Interrupted:
            return  # it is still due, and the resumed run begins with it
        variance = self._q_target_variance()
        for mode, played in results.items():
            self._write_evaluation(mode, played, variance if mode == "train" else {})
        means = {mode: np.mean([e.total for e in played]) for mode, played in results.items()}
        self.display.progress(
            self.decision, values={f"return_{mode}": float(mean) for mode, mean in means.items()}
        )
        self.display.line(
            "evaluation: " + ", ".join(f"{mode} {mean:.1f}" for mode, mean in means.items())
        )
        self._plan_evaluation()
        self._last_report += time.monotonic() - began  # rates are those of learning alone

    def _write_evaluation(
        self, mode: str, played: list[evaluation.Episode], more: dict[str, float]
    ) -> None:
        """A log line for one mode."""
        returns = [episode.total for episode in played]
        successes = [e.success for e in played if e.success is not None]
        if successes:
            more = more | {"success_rate": float(np.mean(successes))}
        self._write(
            "eval",
            mode=mode,
            return_mean=float(np.mean(returns)),
            return_std=float(np.std(returns)),
            episodes=len(returns),
            returns=returns,
            provenance=self.evaluators[mode].provenance,
            **more,
        )

    def _q_target_variance(self) -> dict[str, float]:
        """The paper's Fig. 2 (top) for this moment, from draws of its own: training is unchanged.

        In full precision: bfloat16's rounding would count as variance.
        """
        if not len(self.replay):
            return {}
        seed = seed_for(self.config.seed, f"Q-target variance at {self.decision}")
        rows = np.random.default_rng(seed).integers(len(self.replay), size=VARIANCE_BATCH)
        batch = self.replay.gather(torch.from_numpy(rows).to(self.replay.device)).to(self.device)
        generator = torch.Generator(self.device).manual_seed(seed)
        with speed.uncompiled(self.speed, self.device):
            value = q_target_variance(self.agent, batch, VARIANCE_DRAWS, generator)
        return {"q_target_variance": value}

    def _plan_evaluation(self) -> None:
        """The next evaluation comes at a multiple of eval_every, or at the run's end."""
        regular = (self.decision // self.config.eval_every + 1) * self.config.eval_every
        self.next_evaluation = min(regular, max(self.config.decisions, self.decision + 1))

    def report(self) -> None:
        """Write the mean losses since the last log line: the one device synchronisation."""
        if self.decision < self.next_log:
            self.display.progress(self.decision)
            return
        self.next_log = (self.decision // self.config.log_every + 1) * self.config.log_every
        now = time.monotonic()
        elapsed, self._last_report = now - self._last_report, now
        figures = self.figures.take()
        rate = (self.updates - self._reported_updates) / elapsed
        decisions_rate = (self.decision - self._reported_decision) / elapsed
        self._reported_updates, self._reported_decision = self.updates, self.decision
        if figures:
            self._write(
                "train", **figures, updates_per_second=rate, decisions_per_second=decisions_rate
            )
        self.display.progress(self.decision, values=figures | {"updates_per_second": rate})
        shown = "  ".join(f"{name} {value:.3g}" for name, value in figures.items())
        self.display.line(f"{rate:.1f} updates/s  {shown}")

    def save(self) -> None:
        """A checkpoint from which the run continues bit for bit (on the CPU)."""
        began = time.monotonic()
        self.display.progress(self.decision, "saving")
        self.next_save = (self.decision // self.config.save_every + 1) * self.config.save_every
        tensors = self.agent.state_dict() | {"replay.generator": self.replay.generator.get_state()}
        self.segments = checkpoint.save(
            self.folder, self.decision, tensors, self._state(), self.replay, self.segments
        )
        self._last_report += time.monotonic() - began

    def must_stop(self) -> bool:
        """Whether a signal came or the time is up."""
        out_of_time = time.monotonic() - self.started > seconds(self.config.time_limit)
        return self.interrupt.signal_number is not None or out_of_time

    # Beginning and resuming --------------------------------------------------------------------

    def _open_folder(self) -> checkpoint.Checkpoint | None:
        """Make the run folder, or check that it is this run's and read its newest checkpoint."""
        mine = to_dict(self.config)
        is_run = (self.folder / layout.CONFIG).exists()
        if self.folder.is_file() or (
            not is_run and self.folder.exists() and any(self.folder.iterdir())
        ):
            raise UserError(f"{self.folder} is not empty and not a run; name another --out")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"cannot make the run folder {self.folder}: {error}") from error
        self._stack.enter_context(lock.training(self.folder))
        saved = checkpoint.load(self.folder)
        if saved:  # a run that never came to a checkpoint may be begun anew in any way
            theirs = {k: v for k, v in read_config(self.folder).items() if k not in ABOUT}
            differ = differences(theirs, mine)
            if differ:
                raise UserError(
                    f"{self.folder} holds a run with another configuration:\n  "
                    + "\n  ".join(differ)
                    + "\nGive the same options to continue it, or another --out"
                )
        if saved and saved.decision > self.config.decisions:
            raise UserError(
                f"decisions is {self.config.decisions:,}, but the run in {self.folder} is already "
                f"at {saved.decision:,}; give at least that many, or another --out"
            )
        about = {"svea_version": __version__, "command": command_line()}
        files.replace_json(self.folder / layout.CONFIG, mine | about)
        self._stack.push(self._remove_if_refused)
        return saved

    def _remove_if_refused(self, kind: type[BaseException] | None, *_: object) -> None:
        """Leave no folder that looks like a run where a user's mistake kept one from beginning."""
        alone = [path.name for path in self.folder.iterdir()] == [layout.CONFIG]
        if kind and issubclass(kind, UserError) and alone:
            (self.folder / layout.CONFIG).unlink()
            self.folder.rmdir()

    def _begin(self) -> None:
        """Counters of a new run, and the first episode of every environment."""
        self.decision = self.updates = self.owed_updates = 0
        self.next_evaluation = 0
        self.next_save, self.next_log = self.config.save_every, self.config.log_every
        self.log_offset, self.segments, self._seconds_before = 0, [], 0.0
        self.episodes = [
            EpisodeInProgress(0, episode_seed(self.config.seed, TRAINING, index, 0))
            for index in range(self.config.envs)
        ]
        self.environments.reset([episode.seed for episode in self.episodes])
        for index in range(self.config.envs):
            self.replay.begin(index, self.environments.observations[index, -3:])
        self._start_clocks()

    def _try_to_resume(self, saved: checkpoint.Checkpoint) -> None:
        """Resume; a checkpoint that is whole may still be of another make."""
        try:
            self._resume(saved)
        except SveaError:
            raise
        except checkpoint.DAMAGE as error:
            raise StorageError(
                f"the checkpoint {saved.name} in {self.folder} does not fit this configuration and "
                f"version ({type(error).__name__}: {error}); begin anew with another --out"
            ) from error

    def _resume(self, saved: checkpoint.Checkpoint) -> None:
        """Take over a checkpoint, and play every open episode up to where it was."""
        state = saved.state
        self.decision, self.updates = saved.decision, state["updates"]
        self.owed_updates = state["owed_updates"]
        self.next_evaluation = state["next_evaluation"]
        if self.next_evaluation > self.decision:  # the run's end may have moved
            self._plan_evaluation()
        self.next_save, self.next_log = state["next_save"], state["next_log"]
        self.log_offset, self.segments = state["log_offset"], saved.segments
        self._seconds_before = state["seconds"]
        self.random.bit_generator.state = state["random"]
        self.figures.load_state(state["figures"], self.device)
        self.agent.load_state_dict(saved.agent)
        checkpoint.restore_replay(self.folder, saved, self.replay)
        checkpoint.remove_newer(self.folder, saved)
        here = (self.agent.generator, self.replay.generator)
        there = (saved.agent["generator"], saved.agent["replay.generator"])
        if not all(restore_generator(*pair) for pair in zip(here, there, strict=True)):
            self.display.say(
                "warning: the run comes from another device; from here on draws differ"
            )
        if state.get("speed", self.speed) != self.speed:
            self.display.say(
                f"warning: updates ran {state['speed']} before and run {self.speed} now (--speed); "
                "from here on the run differs from an uninterrupted one by rounding"
            )
        self.episodes = [EpisodeInProgress.from_state(episode) for episode in state["episodes"]]
        for index, episode in enumerate(self.episodes):
            self.environments.replay(index, episode.seed, episode.actions)
            newest = self.replay.newest_frame(index).numpy()
            if not np.array_equal(self.environments.observations[index, -3:], newest):
                self.display.say(
                    f"warning: environment {index} does not repeat its episode exactly, so this "
                    "run is not bit for bit an uninterrupted one (GPU renderers differ by a level)"
                )
        self.display.say(f"resumed at decision {self.decision:,}")
        self._start_clocks()

    def _start_clocks(self) -> None:
        """Rates are measured from here."""
        self._last_report = time.monotonic()
        self._reported_updates = self.updates
        self._reported_decision = self.decision

    def _state(self) -> dict[str, Any]:
        """Everything that draws or counts, besides tensors."""
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
            "figures": self.figures.state(),
            "episodes": [episode.state() for episode in self.episodes],
            "replay": counters(self.replay),
        }

    # Small things ------------------------------------------------------------------------------

    @property
    def seconds(self) -> float:
        """Wall time of the run, earlier parts included."""
        return self._seconds_before + time.monotonic() - self.started

    def _write(self, kind: str, **values: Any) -> None:
        """A log line with the three clocks."""
        frame = self.decision * self.config.action_repeat
        self.log.write(
            kind, decision=self.decision, frame=frame, seconds=round(self.seconds, 3), **values
        )

    def _end_episode(self, index: int, episode: EpisodeInProgress, step: Step) -> None:
        """Log an episode, and begin the next one, which the worker has already started."""
        length = len(episode.actions)
        cut = {k: v for k, v in step.info.items() if k == "physics_error"}
        self._write("episode", env=index, length=length, **{"return": episode.total}, **cut)
        self.display.progress(self.decision, values={"last_episode": round(episode.total, 1)})
        following = EpisodeInProgress(episode.number + 1, self.next_seeds()[index])
        self.episodes[index] = following
        self.replay.begin(index, self.environments.observations[index, -3:])

    def _evaluator(self, mode: str) -> Workers:
        """The processes that evaluate in a mode; started when first needed, then kept."""
        if mode not in self.evaluators:
            config = self.config
            count = evaluation.parallel_environments(config.eval_envs, config.eval_episodes)
            specification = evaluation.environment_in(config, mode)
            self.evaluators[mode] = self._stack.enter_context(
                Workers([specification] * count, self._note)
            )
        return self.evaluators[mode]

    def _drawn_together(self) -> int:
        """How many environments share a process, so that a GPU that learns is asked less often.

        Evaluators have one each: nobody learns meanwhile. And so has somebody else's environment,
        which may not bear to run in a thread.
        """
        ours = not envs.is_foreign(self.config.task)
        shares = self.device.type == "cuda" and ours and rendering.draws_on_gpu()
        return DRAWN_TOGETHER if shares else 1

    def _note(self, incident: dict[str, Any]) -> None:
        """Something went wrong in a worker and was mended."""
        print_incident(incident)
        incidents.record(self.folder, **incident)

    def _check_disk(self) -> None:
        """Refuse a run that the disk has no room for: replay, three checkpoints, the log."""
        learned = sum(
            p.nbytes for o in self.agent.optimisers.values() for p in o.param_groups[0]["params"]
        )
        agent = sum(tensor.nbytes for tensor in finite.learned(self.agent).values()) + 2 * learned
        lines = self.config.decisions / self.config.episode_length
        lines += 2 * self.config.decisions / min(self.config.log_every, self.config.eval_every)
        needed = self._replay_bytes() + 3 * agent + round(500 * lines)
        there = sum(
            files.size_of(self.folder / part) for part in (layout.REPLAY, layout.CHECKPOINTS)
        )
        several = "this run" if self.together == 1 else f"{self.together} runs like this"
        files.require_space(self.folder, (needed - there) * self.together, several)

    def _replay_device(self) -> torch.device:
        """The learner's device if the replay fits there, else the host; refused if nowhere."""
        needed = self._replay_bytes()
        if self.device.type == "cuda":
            free, _ = torch.cuda.mem_get_info(self.device)
            if needed < 0.8 * free:  # what other runs here have taken is not free any more
                return self.device
            self.display.say(
                f"replay: {needed / 1e9:.2f} GB do not fit into the GPU's free "
                f"{free / 1e9:.2f} GB; it stays in main memory"
            )
        # The system counts memory when it is written to, so the runs' needs are added up here.
        several = f"{self.together} times " if self.together > 1 else ""
        machine.require(
            needed * self.together,
            machine.available_bytes(),
            f"{several}the replay buffer of {self.config.replay_capacity:,} decisions",
            "Use a smaller --replay, fewer --decisions, a smaller --image-size"
            + (" or fewer --seeds" if several else ""),
        )
        return torch.device("cpu")

    def _replay_bytes(self) -> int:
        config = self.config
        return replay_bytes(
            self.config.replay_capacity,
            config.rendered_size,
            self.environments.action_size,
            config.envs,
            config.episode_length,
        )

    def _check_actions(self) -> None:
        """The base algorithm fits the environment's actions."""
        discrete = self.environments.choices > 0
        if discrete and self.config.base != "dqn":
            raise UserError(
                f"{self.config.task} has {self.environments.choices} discrete actions, but base "
                f"{self.config.base} takes a vector; use --base dqn"
            )
        if not discrete and self.config.base == "dqn":
            raise UserError(
                f"base dqn chooses among discrete actions, but {self.config.task} has a vector of "
                f"{self.environments.action_size}; use --action-bins 3, or --base sac"
            )

    def _announce(self) -> None:
        """What is about to happen, in numbers, before it happens."""
        config = self.config
        self.display.say(
            f"{config.task}, {config.method} on {config.base} with {config.encoder} (augment "
            f"{config.augment}), seed {config.seed}, "
            f"preset {config.preset}: {config.decisions:,} decisions = "
            f"{config.decisions * config.action_repeat:,} frames, {config.envs} environment(s), "
            f"{self.device.type} in {str(self.precision).removeprefix('torch.')}, {self.speed}\n"
            f"run folder {self.folder}; replay {self._replay_bytes() / 1e9:.2f} GB for "
            f"{self.config.replay_capacity:,} decisions, in memory and in the folder"
        )

    def _sinks(self) -> list[Sink]:
        """The loggers that were asked for."""
        sinks: list[Sink] = []
        if self.config.tensorboard:
            sinks.append(TensorBoard(self.folder, self.decision))
        if self.config.wandb:
            sinks.append(WeightsAndBiases(self.folder, to_dict(self.config)))
        return sinks

    def say_how_it_ended(self) -> None:
        """The last word: done, out of time, or interrupted."""
        if self.decision >= self.config.decisions and self.next_evaluation > self.decision:
            self.display.say(f"done: {self.decision:,} decisions in {self.folder}")
        elif self.interrupt.signal_number is not None:
            raise Stopped(self.interrupt.signal_number, self.folder, self.decision)
        else:
            self.display.say(
                f"time limit: saved at decision {self.decision:,} in {self.folder}; "
                "the same command continues"
            )


class Interrupt:
    """Whether Ctrl-C or a termination came. The second one ends the process at once."""

    signal_number: int | None = None

    def handle(self, number: int, frame: object) -> None:
        """Note the first signal; give up on the second."""
        if self.signal_number is not None:
            raise KeyboardInterrupt
        self.signal_number = number
        print(
            "\nstopping: saving the run first (once more: stop at once, losing what came after the "
            "last checkpoint)",
            file=sys.stderr,
        )


@contextmanager
def interrupts() -> Iterator[Interrupt]:
    """Catch SIGINT and SIGTERM for a while; from another thread than the main one, do nothing."""
    interrupt, before = Interrupt(), {}
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, interrupt.handle)
    except ValueError:  # only the main thread may
        pass
    try:
        yield interrupt
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def command_line() -> str:
    """The command that started this process, as one would type it."""
    import shlex

    return shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
