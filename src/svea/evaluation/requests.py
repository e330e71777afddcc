"""Evaluating runs: what is asked for, the environments it needs, and the records it gives."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import json
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from svea import envs
from svea.agents.agent import Agent
from svea.agents.policies import AdaptingPolicy, deployed_policy, random_policy
from svea.config import Config
from svea.config.modes import label_mode, modes_for
from svea.core import importing as modules
from svea.core.errors import SveaError, UserError, between, unknown_name
from svea.core.given import Factory, name_task
from svea.core.seeds import evaluation_seeds
from svea.core.terminal import warn
from svea.envs.workers.pool import Workers, environments_per_process
from svea.evaluation.episodes import Episodes, check_episodes, episodes_in
from svea.evaluation.play import (
    EpisodeResult,
    Interrupted,
    Policy,
    check_actions,
    fingerprint,
    other_renderer,
    parallel_environments,
    play,
    record_of,
    record_template,
)
from svea.runs.load import load_agent, load_config, read_config
from svea.runs.records import Record, protocol_key
from svea.speed import EXACT, choose_device, explained
from svea.speed.host import multiply_float32, sharing_cores

POLICIES = ("agent", "random")
CURE = "Use fewer --jobs or --envs, or end other programs on it; the same command continues"
"""What helps an evaluation on a GPU that fails or is full."""


@dataclass(frozen=True)
class Request:
    """What to play: the same request gives every agent the same episodes."""

    modes: tuple[str, ...] = ("train",)
    """Where: modes, and groups of them such as `all`."""
    episodes: Episodes = 30
    """Per mode; `all` shows each of a mode's worlds once; or numbers by mode."""
    seed: int = 0
    policies: tuple[str, ...] = ("agent",)
    environments: int = 0
    """In parallel; 0 is one per core."""
    device: str = "cpu"
    data_dir: str | None = None
    task: str = ""
    """Play in this task instead of the run's: another look of the world, made by a function."""
    jobs: int = 1
    """How much is played at once: agents, and modes of an agent where there are fewer agents; each
    in environments of its own. Episodes are the same."""

    def check(self) -> Request:
        """Refuse unknown names and empty evaluations before anything starts."""
        if not self.modes:
            raise UserError(
                "no modes to evaluate; name at least one, e.g. --modes train color_hard"
            )
        envs.expand_modes(self.modes)
        if self.task:
            envs.check_task(self.task)
        for policy in self.policies:
            if policy not in POLICIES:
                raise unknown_name("policy", str(policy), POLICIES)
        check_episodes(self.episodes)
        if not 0 <= self.seed < 2**63:
            raise UserError(f"seed is {self.seed}; allowed: 0 to 2**63 - 1")
        if not 0 <= self.environments <= 1024:
            raise UserError(f"envs is {self.environments}; allowed: 0 (one per core) to 1024")
        between(1, 1024).check("jobs", self.jobs)
        return self


OnRecord = Callable[[Path, Record], None]
OnProblem = Callable[[Path, str, SveaError], None]
"""Called with the run, the mode (or nothing if it is all of them) and what went wrong."""


def evaluate_runs(
    runs: Sequence[Path],
    request: Request,
    *,
    known: Callable[[Path], list[Record]] = lambda run: [],
    on_record: OnRecord,
    on_problem: OnProblem,
    on_stop: Callable[[], None] = lambda: None,
) -> None:
    """Play what a request asks of every run; episodes that are known already are passed on.

    The next mode's environments start while this one's are played in. Where one agent plays at a
    time, runs with the same task share their environments.

    Args:
        runs: folders of runs or exports.
        request: what to play.
        known: the episodes of a run that need not be played again.
        on_record: called with the run and each record, old or new, as soon as it is there; by one
            thread at a time.
        on_problem: called with what cannot be evaluated, in the same way; the rest still is.
        on_stop: called when Ctrl-C came while several agents play, which takes seconds to end.
    """
    request.check()
    evaluation = _Evaluation(request, known, on_record, on_problem, on_stop)
    with sharing_cores(evaluation.device, request.jobs):
        evaluation.play(runs)


@dataclass(frozen=True)
class _Environments:
    """One kind of environment, and the runs to be evaluated in it."""

    mode: str
    """As records name it."""
    arguments: dict[str, Any]
    """Of ``make_env``."""
    episodes: int | str
    runs: list[Path]
    random: dict[str, Record]
    """The random policy's episodes: played for one run, they are those of all."""
    step_timeout: float
    """Of the first run."""
    device: str
    """Where their agents compute."""

    def start(self, requested: int) -> Workers:
        """As many environments as are asked for and needed, ready to play."""
        count = parallel_environments(requested, self.episodes)
        together = environments_per_process(self.arguments["task"], self.device)
        return Workers(
            [self.arguments] * count, per_process=together, step_timeout=self.step_timeout
        )


class _Evaluation:
    """An evaluation of runs under way."""

    def __init__(
        self,
        request: Request,
        known: Callable[[Path], list[Record]],
        on_record: OnRecord,
        on_problem: OnProblem,
        on_stop: Callable[[], None],
    ) -> None:
        self.request, self.known, self.on_stop = request, known, on_stop
        self.telling, self.loading = threading.Lock(), threading.Lock()
        self.stopping, self.said = threading.Event(), set[str]()
        self.on_record, self.on_problem = self._alone(on_record), self._alone(on_problem)
        self.device = choose_device(request.device)
        kept = max(4, request.jobs)
        self._loaded = functools.lru_cache(maxsize=kept)(self._load)

    def _alone(self, callback: Callable[..., None]) -> Callable[..., None]:
        """The same function, for one thread at a time."""

        def call(*arguments: Any) -> None:
            with self.telling:
                callback(*arguments)

        return call

    def play(self, runs: Sequence[Path]) -> None:
        """Evaluate all runs, one after the other or several at once."""
        kinds = self._kinds(runs)
        if kinds:
            evaluated = dict.fromkeys(kind.arguments["mode"] for kind in kinds)
            check_episodes(self.request.episodes, evaluated)
        if self.request.jobs == 1:
            return self._play_kinds(kinds)
        self._check_one_arithmetic(runs)
        with ThreadPoolExecutor(self.request.jobs) as pool:
            parts = self.request.jobs // max(1, len(runs))
            shares = [share for run in runs for share in _shares(_of_run(kinds, run), parts)]
            playing = [pool.submit(self._play_kinds, share) for share in shares]
            try:
                wait(playing)
            except BaseException:  # Ctrl-C reaches this thread alone
                self.stopping.set()
                self.on_stop()
                pool.shutdown(cancel_futures=True)
                raise
        for one in playing:
            one.result()  # what no run may raise, after all others have ended

    def _play_kinds(self, kinds: Sequence[_Environments]) -> None:
        """One kind of environment after the other; the next one's processes start meanwhile."""
        waiting: list[Future[Workers]] = []
        # A worker ends with the thread that started it, so this one outlives them all.
        with ThreadPoolExecutor(1) as starter:
            starts = (starter.submit(self._start, kind) for kind in kinds)
            try:
                waiting += itertools.islice(starts, 1)
                for kind in kinds:
                    waiting += itertools.islice(starts, 1)
                    self._play_kind(kind, waiting.pop(0))
            finally:
                for start in waiting:
                    with contextlib.suppress(SveaError, Interrupted):
                        if not start.cancel():
                            start.result().close()

    def _check_one_arithmetic(self, runs: Sequence[Path]) -> None:
        """Refuse agents whose products differ: a process has one way of multiplying on a GPU."""
        ways = set()
        for run in runs:
            with contextlib.suppress(SveaError):
                ways.add(load_config(run).precision == EXACT)
        if len(ways) > 1 and self.device.type == "cuda":
            raise UserError(
                f"agents trained with --precision {EXACT} and with another cannot play at once on "
                "a GPU; use --jobs 1, or evaluate them apart"
            )

    def _kinds(self, runs: Sequence[Path]) -> list[_Environments]:
        """The kinds of environment that are needed, task by task and mode by mode."""
        kinds: dict[str, _Environments] = {}
        for run in runs:
            try:
                config = load_config(run)
            except SveaError as error:
                self.on_problem(run, "", error)
                continue
            on_problem = functools.partial(self.on_problem, run)
            other = self.request.task
            for mode in modes_for(other or config.task, self.request.modes, on_problem):
                arguments = config.environment_in(mode, self.request.data_dir, other)
                name = json.dumps(arguments, sort_keys=True)
                shown = label_mode(mode, other)
                limit, device = config.step_timeout, self.device.type
                episodes = episodes_in(self.request.episodes, mode)
                kind = _Environments(shown, arguments, episodes, [], {}, limit, device)
                kinds.setdefault(name, kind).runs.append(run)
        return list(kinds.values())

    def _play_kind(self, kind: _Environments, start: Future[Workers]) -> None:
        """Evaluate every run in its environments; one that fails does not stop the others."""
        left, begin = list(kind.runs), start.result
        while left:
            try:
                workers = begin()
            except SveaError as error:
                for run in left:
                    self.on_problem(run, kind.mode, error)
                return
            with workers:
                begin = functools.partial(self._start, kind)
                while left:
                    run = left.pop(0)
                    try:
                        with explained(CURE):
                            self._play_run(run, kind, workers)
                    except SveaError as error:
                        self.on_problem(run, kind.mode, error)
                        break  # these may be dead, or in the middle of an episode

    def _play_run(self, run: Path, kind: _Environments, workers: Workers) -> None:
        """One run in one mode: pass on what is known, play the rest."""
        self._check_stop()
        agent, config, weights = self._loaded(run, threading.get_ident())
        multiply_float32(self.device, config.precision == EXACT)  # another agent may be loaded
        check_actions(agent, workers.action_size, workers.choices, kind.arguments["task"])
        self._note_renderer(run, config, workers)
        known = {protocol_key(record): record for record in self.known(run)} | kind.random
        worlds = workers.provenance.get("worlds", 1)
        seeds = evaluation_seeds(self.request.seed, kind.episodes, worlds)
        for name in self.request.policies:
            template = record_template(config, name, agent.decision, weights, kind.mode, workers)
            if name == "agent" and (pictures := read_config(run).get("pictures")):
                template["pictures"] = pictures  # those of training
            missing = []
            for number, seed in enumerate(seeds):
                record = known.get(protocol_key(template | {"seed": seed}))
                if record is None:
                    missing.append(seed)
                else:
                    self.on_record(run, record | template | {"episode": number})
            if name == "agent":
                policy = deployed_policy(agent, config)
            else:
                policy = random_policy(workers.action_size, workers.choices)

            def finished(
                episode: EpisodeResult, template: Record = template, policy: Policy = policy
            ) -> None:
                record = record_of(template, seeds.index(episode.seed), episode)
                if isinstance(policy, AdaptingPolicy):
                    record["adaptation_seconds"] = round(policy.seconds(episode), 6)
                if record["policy"] == "random":
                    kind.random[protocol_key(record)] = record
                self.on_record(run, record)

            stop = self.stopping.is_set
            play(policy, workers, missing, should_stop=stop, on_episode=finished)

    def _note_renderer(self, run: Path, config: Config, workers: Workers) -> None:
        """Say once if another renderer draws than in the run's training."""
        said = other_renderer(run, config, workers.provenance)
        with self.telling:
            if said and said not in self.said:
                self.said.add(said)
                warn(said)

    def _start(self, kind: _Environments) -> Workers:
        """The environments of a kind."""
        self._check_stop()
        return kind.start(self.request.environments)

    def _check_stop(self) -> None:
        """End this thread after Ctrl-C: what it would start or load next takes seconds."""
        if self.stopping.is_set():
            raise Interrupted

    def _load(self, run: Path, thread: int) -> tuple[Agent, Config, str]:
        """An agent, its configuration, and what tells its weights from others.

        Every mode asks again. Threads have agents of their own: some adapt while they play.
        """
        with self.loading:  # making one draws from torch's own generator
            self._check_stop()  # others may have been loaded first
            agent = load_agent(run, device=self.request.device)
        return agent, load_config(run), fingerprint(agent)


def _of_run(kinds: Sequence[_Environments], run: Path) -> list[_Environments]:
    """The environments that one run is evaluated in; it shares the random policy's episodes."""
    return [dataclasses.replace(kind, runs=[run]) for kind in kinds if run in kind.runs]


def _shares(kinds: Sequence[_Environments], parts: int) -> list[list[_Environments]]:
    """Kinds dealt out to several threads: the longest first, each to who has least to play."""
    shares: list[list[_Environments]] = [[] for _ in range(min(max(1, parts), len(kinds)))]
    for kind in sorted(kinds, key=_length, reverse=True):
        min(shares, key=lambda share: sum(map(_length, share))).append(kind)
    return [[kind for kind in kinds if kind in share] for share in shares]  # in their usual order


def _length(kind: _Environments) -> int:
    """Episodes of a kind; `all` are 100 in the benchmark's modes."""
    return kind.episodes if isinstance(kind.episodes, int) else 100


def evaluate(
    run: str | Path,
    modes: Iterable[str] = ("train",),
    episodes: Episodes = 30,
    *,
    seed: int = 0,
    policy: str = "agent",
    environments: int = 0,
    device: str = "cpu",
    data_dir: str | None = None,
    task: str | Factory = "",
    trust: bool = False,
) -> list[Record]:
    """Evaluate a run's (or an exported) agent, and return one record per episode.

    Args:
        run: folder of a run or of an export.
        modes: where to evaluate.
        episodes: per mode, or ``all``: each of a mode's worlds once; or by mode, such as
            ``{"color_hard": 100, "default": 20}``.
        seed: of the evaluation; the same seed gives every agent the same episodes.
        policy: ``agent``, or ``random`` for the baseline that needs no learning.
        environments: in parallel; 0 is one per core.
        device: where the agent computes.
        data_dir: folder with benchmark data; default: the run's, then SVEA_DATA.
        task: play in this task instead of the run's: a function that makes your world in another
            look, or its ``module:function``; it stands in the records' mode. A run of a function
            of a notebook needs that function here in another process.
        trust: import the modules that the run's config.json names, as in `load_agent`.

    Example:
        >>> records = evaluate("runs/demo", ["train", "color_hard"], episodes=10)  # doctest: +SKIP
        >>> sum(r["return"] for r in records if r["mode"] == "train") / 10  # doctest: +SKIP
    """
    modes, task = tuple(modes), name_task(task)
    modules.trust(task)
    if task == load_config(run, trust).task:
        task = ""
    request = Request(modes, episodes, seed, (policy,), environments, device, data_dir, task)

    def fail(run: Path, mode: str, error: SveaError) -> None:
        raise error

    records: list[Record] = []
    evaluate_runs([Path(run)], request, on_record=lambda _, r: records.append(r), on_problem=fail)
    order = list(dict.fromkeys(record["mode"] for record in records))
    return sorted(records, key=lambda record: (order.index(record["mode"]), record["episode"]))
