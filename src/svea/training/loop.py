"""The training loop: act, step, learn, store, log, evaluate, save.

`Trainer.turns` is the whole of it. While the environments carry out the actions, in processes of
their own, the learner makes an update for each of these decisions.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from svea import speed
from svea.agents import finite
from svea.config.names import own_modules
from svea.core.errors import Stopped
from svea.core.seeds import TRAINING, episode_seed
from svea.envs.workers.pool import Step
from svea.evaluation.play import Interrupted
from svea.training.evaluators import target_variance
from svea.training.state import TrainingState


class Trainer(TrainingState):
    """The loop over the state of a run."""

    def run(self) -> None:
        """Train until the last decision, the time limit, or an interrupt; save in any case."""
        with self.display.show():
            for _ in self.turns():
                pass
        self.report_end()

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
        finite.check_update(self.agent, losses)
        self.losses.add(losses)
        self.updates += 1

    def store(self, actions: np.ndarray, steps: list[Step]) -> None:
        """Put what happened into the replay; log episodes that ended."""
        before = self.decision
        for index, step in enumerate(steps):
            seen = self.environments.finals if step.done else self.environments.observations
            self.replay.append(
                index, actions[index], step.reward, step.terminated, seen[index, -3:], step.done
            )
            self.decision += 1
            if step.done:
                self._log_episode(index, step)
                self.replay.begin(index, self.environments.observations[index, -3:])
        self.replay.flush()  # now, while a GPU still works on updates that were started before
        if before < self.config.warmup <= self.decision:
            # The decision that follows makes its own.
            self.owed_updates = self.config.warmup - 1

    def _log_episode(self, index: int, step: Step) -> None:
        """One line for an episode that ended."""
        total, length = step.episode.total, len(step.episode.actions)
        error = {k: v for k, v in step.info.items() if k == "physics_error"}
        self.write_log("episode", env=index, length=length, **{"return": total}, **error)
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
        self.next_log = (self.decision // self.config.log_every + 1) * self.config.log_every
        rates = self.rates.take(self.updates, self.decision)
        losses = self.losses.take()
        if losses:
            self.write_log("train", **losses, **rates)
        updates_per_second = rates["updates_per_second"]
        shown = losses | {"updates_per_second": updates_per_second}
        self.display.progress(self.decision, values=shown)
        listed = [f"{name} {value:.3g}" for name, value in losses.items()]
        rate = f"{updates_per_second:.1f} updates/s" if self.updates else "warming up"
        self.display.line("  ".join([rate, *listed]))

    def must_stop(self) -> bool:
        """Whether a signal came or the time is up."""
        return self.interrupt.must_stop(self.config.time_limit)

    def report_end(self) -> None:
        """The last line: done, out of time, or interrupted."""
        if self.decision >= self.config.decisions and self.next_evaluation > self.decision:
            self.display.done(self.folder, self.config.task, own_modules(vars(self.config)))
            return
        if self.interrupt.signal_number is not None:
            raise Stopped(self.interrupt.signal_number, self.what_is_left)
        why = "callback" if self.interrupt.by_callback else "time limit"
        self.display.say(f"{why}: {self.what_is_left}")
