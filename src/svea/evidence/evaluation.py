"""Evaluation: whole episodes in any mode, in parallel, each a function of its seed."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import json
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from svea import __version__, envs
from svea.envs.workers.pool import Workers
from svea.errors import NumericsError, SveaError, UserError, unknown_name
from svea.machine import usable_cores
from svea.runs.records import Record, protocol_key
from svea.seeds import evaluation_seeds

if TYPE_CHECKING:
    from svea.agents.agent import Agent
    from svea.config import Config

POLICIES = ("agent", "random")


class Interrupted(Exception):
    """Evaluation was asked to stop before its end."""


@dataclass
class Episode:
    """An episode and, as far as it is played, its outcome."""

    seed: int
    total: float = 0.0
    length: int = 0
    success: bool | None = None
    """None where the task knows no success."""
    world: int | None = None
    """Which of a mode's worlds it shows: a colour setting, a clip; None where there is but one."""


Policy = Callable[[NDArray[np.uint8], Sequence[Episode | None]], NDArray[np.float32]]
"""Actions for a row of observations and the episodes they are from (None: nobody plays there)."""


def parallel_environments(requested: int, episodes: int) -> int:
    """How many environments evaluate at once: as asked, or one per core."""
    return min(episodes, requested or min(16, usable_cores()))


USUAL = "usual"  # train and the test mode that one looks at first: color_hard, or a robot's test


def modes_for(
    task: str, modes: Iterable[str], on_problem: Callable[[str, UserError], None]
) -> list[str]:
    """The modes of a task that a user means; `all` is different for a robot task.

    Args:
        task: whose modes.
        modes: as typed.
        on_problem: called with each mode that the task does not have.
    """
    found: list[str] = []
    for mode in modes:
        if mode == USUAL:
            shown = ("train", "color_hard", "test")
            found += [name for name in shown if name in envs.modes_of(task)]
            continue
        try:
            found += envs.expand_modes([mode], task)
        except UserError as error:
            on_problem(mode, error)
    return list(dict.fromkeys(found))


def environment_in(config: Config, mode: str, data_dir: str | None = None) -> dict[str, Any]:
    """The arguments of ``make_env`` for a run's task in a mode.

    Args:
        config: of the run.
        mode: how the world shall look.
        data_dir: folder with benchmark data; default: the run's, then SVEA_DATA.
    """
    chosen = config.environment | {"mode": mode}
    return chosen | {"data_dir": data_dir} if data_dir else chosen


# Playing -----------------------------------------------------------------------------------------


def play(
    policy: Policy,
    workers: Workers,
    seeds: Iterable[int],
    should_stop: Callable[[], bool] = lambda: False,
    on_episode: Callable[[Episode], None] = lambda episode: None,
) -> list[Episode]:
    """Play one episode per seed; a worker that ends one takes the next.

    The policy always sees the observations of *all* workers, so that every action is computed in a
    batch of the same size: other sizes take other kernels, whose last bits differ.
    """
    episodes = [Episode(seed) for seed in seeds]
    waiting = iter(episodes)
    playing: list[Episode | None] = [None] * len(workers)

    def start(worker: int) -> None:
        playing[worker] = episode = next(waiting, None)
        if episode is not None:
            workers.reset([episode.seed], [worker])

    for worker in range(len(workers)):
        start(worker)
    while active := [worker for worker, episode in enumerate(playing) if episode is not None]:
        if should_stop():
            raise Interrupted
        actions = policy(workers.observations, playing)
        workers.send(actions[active], [None] * len(active), active)
        for worker, step in zip(active, workers.receive(), strict=True):
            episode = playing[worker]
            assert episode is not None
            episode.total += step.reward
            episode.length += 1
            episode.world = step.info.get("world", episode.world)
            if "success" in step.info:
                episode.success = bool(step.info["success"])
            if step.done:
                on_episode(episode)
                start(worker)
    return episodes


def agent_policy(agent: Agent, config: Config) -> Policy:
    """The agent's actions as evaluations take them: the most likely ones, or sampled."""
    if config.eval_actions == "most_likely":
        return lambda observations, episodes: agent.act(observations)
    generators = OwnGenerators(lambda seed: torch.Generator(agent.device).manual_seed(seed))
    return lambda observations, episodes: agent.act(
        observations, explore=True, generator=generators(episodes)
    )


def deployed_policy(agent: Agent, config: Config) -> Policy:
    """The agent as it is tested: PAD's goes on learning from what it sees, any other just acts."""
    from svea.evidence.adaptation import AdaptingPolicy

    if config.auxiliary == "pad":
        return AdaptingPolicy(agent, explore=config.eval_actions == "sampled")
    return agent_policy(agent, config)


def random_policy(actions: int, choices: int = 0) -> Policy:
    """Actions drawn uniformly: a vector in [-1, 1], or one of several choices."""
    generators = OwnGenerators(np.random.default_rng)

    def draw(generator: np.random.Generator) -> NDArray[Any]:
        return generator.integers(choices, size=1) if choices else generator.uniform(-1, 1, actions)

    return lambda observations, episodes: np.stack(
        [draw(generator) for generator in generators(episodes)]
    ).astype(np.float32)


class OwnGenerators:
    """A generator for every episode, set by its seed.

    So what is drawn in an episode does not depend on how many are played beside it.
    """

    def __init__(self, make: Callable[[int], Any]) -> None:
        """Take what makes a generator from a seed."""
        self._make = make
        self._rows: dict[int, Any] = {}

    def __call__(self, episodes: Sequence[Episode | None]) -> list[Any]:
        """The generators of the episodes that are being played, row by row."""
        for row, episode in enumerate(episodes):
            if row not in self._rows or (episode is not None and episode.length == 0):
                self._rows[row] = self._make(episode.seed if episode is not None else 0)
        return [self._rows[row] for row in range(len(episodes))]


# Evaluating runs ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Request:
    """What to play: the same request gives every agent the same episodes."""

    modes: tuple[str, ...] = ("train",)
    """Where; `all` is every mode that a task has."""
    episodes: int = 30
    """Per mode."""
    seed: int = 0
    policies: tuple[str, ...] = ("agent",)
    environments: int = 0
    """In parallel; 0 is one per core."""
    device: str = "cpu"
    data_dir: str | None = None

    def check(self) -> Request:
        """Refuse unknown names and empty evaluations before anything starts."""
        if not self.modes:
            raise UserError(
                "no modes to evaluate; name at least one, e.g. --modes train color_hard"
            )
        envs.expand_modes(mode for mode in self.modes if mode != USUAL)
        for policy in self.policies:
            if policy not in POLICIES:
                raise unknown_name("policy", str(policy), POLICIES)
        if self.episodes < 1:
            raise UserError(f"episodes is {self.episodes}; allowed: 1 or more")
        if not 0 <= self.seed < 2**63:
            raise UserError(f"seed is {self.seed}; allowed: 0 to 2**63 - 1")
        if not 0 <= self.environments <= 1024:
            raise UserError(f"envs is {self.environments}; allowed: 0 (one per core) to 1024")
        return self


OnRecord = Callable[[Path, Record], None]
OnProblem = Callable[[Path, str, SveaError], None]
"""Called with the run, the mode (or nothing if it is all of them) and what went wrong."""


def evaluate(
    run: str | Path,
    modes: Iterable[str] = ("train",),
    episodes: int = 30,
    *,
    seed: int = 0,
    policy: str = "agent",
    environments: int = 0,
    device: str = "cpu",
    data_dir: str | None = None,
) -> list[Record]:
    """Evaluate a run's (or an exported) agent, and return one record per episode.

    Args:
        run: folder of a run or of an export.
        modes: where to evaluate.
        episodes: per mode.
        seed: of the evaluation; the same seed gives every agent the same episodes.
        policy: ``agent``, or ``random`` for the baseline that needs no learning.
        environments: in parallel; 0 is one per core.
        device: where the agent computes.
        data_dir: folder with benchmark data; default: the run's, then SVEA_DATA.

    Example:
        >>> records = evaluate("runs/demo", ["train", "color_hard"], episodes=10)  # doctest: +SKIP
        >>> sum(r["return"] for r in records if r["mode"] == "train") / 10  # doctest: +SKIP
    """
    modes = tuple(modes)
    request = Request(modes, episodes, seed, (policy,), environments, device, data_dir)

    def fail(run: Path, mode: str, error: SveaError) -> None:
        raise error

    records: list[Record] = []
    evaluate_runs([Path(run)], request, on_record=lambda _, r: records.append(r), on_problem=fail)
    order = list(dict.fromkeys(record["mode"] for record in records))
    return sorted(records, key=lambda record: (order.index(record["mode"]), record["episode"]))


def evaluate_runs(
    runs: Sequence[Path],
    request: Request,
    *,
    known: Callable[[Path], list[Record]] = lambda run: [],
    on_record: OnRecord,
    on_problem: OnProblem,
) -> None:
    """Play what a request asks of every run; each episode that is known already is passed on as is.

    Runs with the same task share their environments, and the next mode's environments start while
    this one's are played in.

    Args:
        runs: folders of runs or exports.
        request: what to play.
        known: the episodes of a run that need not be played again.
        on_record: called with the run and each record, old or new, as soon as it is there.
        on_problem: called with what cannot be evaluated; the rest still is.
    """
    request.check()
    _Evaluation(request, known, on_record, on_problem).play(runs)


@dataclass(frozen=True)
class _Set:
    """One kind of environment, and the runs to be evaluated in it."""

    mode: str
    environment: dict[str, Any]
    runs: list[Path]
    random: dict[str, Record]
    """The random policy's episodes: played for one run, they are those of all."""


class _Evaluation:
    """What `evaluate_runs` was asked for, at work."""

    def __init__(
        self,
        request: Request,
        known: Callable[[Path], list[Record]],
        on_record: OnRecord,
        on_problem: OnProblem,
    ) -> None:
        self.request, self.known = request, known
        self.on_record, self.on_problem = on_record, on_problem
        self.load = functools.lru_cache(maxsize=4)(self._load)  # every mode asks again

    def play(self, runs: Sequence[Path]) -> None:
        """Set by set; the next one's processes start meanwhile."""
        sets = self._sets(runs)
        count = parallel_environments(self.request.environments, self.request.episodes)
        waiting: list[Future[Workers]] = []
        # A worker ends with the thread that started it, so this one outlives them all.
        with ThreadPoolExecutor(1) as starter:
            starts = (starter.submit(Workers, [one.environment] * count) for one in sets)
            try:
                waiting += itertools.islice(starts, 1)
                for one in sets:
                    waiting += itertools.islice(starts, 1)
                    self._play_set(one, waiting.pop(0))
            finally:
                for start in waiting:
                    with contextlib.suppress(SveaError):
                        if not start.cancel():
                            start.result().close()

    def _sets(self, runs: Sequence[Path]) -> list[_Set]:
        """The kinds of environment that are needed, task by task and mode by mode."""
        from svea.runs.load import load_config

        sets: dict[str, _Set] = {}
        for run in runs:
            try:
                config = load_config(run)
            except SveaError as error:
                self.on_problem(run, "", error)
                continue
            note = functools.partial(self.on_problem, run)
            for mode in modes_for(config.task, self.request.modes, note):
                environment = environment_in(config, mode, self.request.data_dir)
                name = json.dumps(environment, sort_keys=True)
                sets.setdefault(name, _Set(mode, environment, [], {})).runs.append(run)
        return list(sets.values())

    def _play_set(self, one: _Set, start: Future[Workers]) -> None:
        """Evaluate every run of a set; one that fails does not keep the others from it."""
        try:
            workers = start.result()
        except SveaError as error:
            for run in one.runs:
                self.on_problem(run, one.mode, error)
            return
        with contextlib.ExitStack() as stack:
            count = len(stack.enter_context(workers))
            for run in one.runs:
                try:
                    self._play_run(run, one, workers)
                except SveaError as error:
                    self.on_problem(run, one.mode, error)
                    workers.close()  # they may be dead, or in the middle of an episode
                    if run != one.runs[-1]:
                        workers = stack.enter_context(Workers([one.environment] * count))

    def _play_run(self, run: Path, one: _Set, workers: Workers) -> None:
        """One run in one mode: pass on what is known, play the rest."""
        from svea.evidence.adaptation import AdaptingPolicy

        agent, config, weights = self.load(run)
        known = {protocol_key(record): record for record in self.known(run)} | one.random
        worlds = workers.provenance.get("worlds", 1)
        seeds = evaluation_seeds(self.request.seed, self.request.episodes, worlds)
        for policy in self.request.policies:
            template = _template(config, policy, agent.decision, weights, one.mode, workers)
            missing = []
            for number, seed in enumerate(seeds):
                record = known.get(protocol_key(template | {"seed": seed}))
                if record is None:
                    missing.append(seed)
                else:
                    self.on_record(run, record | template | {"episode": number})
            if policy == "agent":
                choose = deployed_policy(agent, config)
            else:
                choose = random_policy(workers.action_size, workers.choices)

            def finished(
                episode: Episode, template: Record = template, choose: Policy = choose
            ) -> None:
                record = _record(template, seeds.index(episode.seed), episode)
                if isinstance(choose, AdaptingPolicy):
                    record["adaptation_seconds"] = round(choose.seconds(episode), 6)
                if record["policy"] == "random":
                    one.random[protocol_key(record)] = record
                self.on_record(run, record)

            play(choose, workers, missing, on_episode=finished)

    def _load(self, run: Path) -> tuple[Agent, Config, str]:
        """An agent, its configuration, and what tells its weights from others."""
        from svea.runs.load import load_agent, load_config

        agent = load_agent(run, device=self.request.device)
        return agent, load_config(run), fingerprint(agent)


def _template(
    config: Config, policy: str, decision: int, weights: str, mode: str, workers: Workers
) -> Record:
    """What the records of one run, policy and mode have in common."""
    is_agent = policy == "agent"
    return {
        "policy": policy,
        "task": config.task,
        "method": config.method,
        "augment": config.augment,
        "run_seed": config.seed,
        "decision": decision if is_agent else 0,
        "weights": weights if is_agent else None,
        "actions": _actions(config) if is_agent else "uniform",
        "mode": mode,
        "svea_version": __version__,
        "provenance": workers.provenance,
    }


def _actions(config: Config) -> str:
    """How an agent's actions come about; adapted ones are another protocol."""
    return config.eval_actions + (", adapted" if config.auxiliary == "pad" else "")


def _record(template: Record, number: int, episode: Episode) -> Record:
    """One line of eval.jsonl."""
    if not np.isfinite(episode.total):
        raise NumericsError(f"the return of the episode with seed {episode.seed} is not finite")
    return template | {
        "episode": number,
        "seed": episode.seed,
        "world": episode.world,
        "return": episode.total,
        "length": episode.length,
        **({} if episode.success is None else {"success": episode.success}),
    }


def fingerprint(agent: Agent) -> str:
    """A hash of the weights that act and judge: the same for a run's checkpoint and its export."""
    digest = hashlib.sha256()
    for name, tensor in sorted(agent.state_dict().items()):
        if name.startswith(("trunk.", "actor.", "critic.")):
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]
