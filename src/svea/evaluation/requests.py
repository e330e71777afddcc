"""Evaluating runs: what is requested, the environments it needs, and the records it gives."""

import functools
import hashlib
import itertools
import json
import math
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from svea import __version__, envs
from svea.agents.agent import Agent
from svea.agents.policies import AdaptingPolicy, deployed_policy, random_policy
from svea.config import Config
from svea.config.modes import (
    ALL,
    check_factor,
    label_mode,
    mode_of_label,
    modes_for,
    name_worlds,
    parse_mode,
    vary_modes,
)
from svea.core import importing as modules
from svea.core.errors import (
    NumericsError,
    StorageError,
    SveaError,
    UserError,
    between,
    unknown_name,
)
from svea.core.given import Factory, name_task
from svea.core.seeds import evaluation_seeds
from svea.core.terminal import warn
from svea.core.words import listed, plural
from svea.envs.looks.varied import video_provenance
from svea.envs.rendering.backend import PROGRAM, RASTER, choose_renderer
from svea.envs.workers.pool import Workers, environments_per_process
from svea.evaluation import Episodes, check_episodes, episodes_in
from svea.evaluation.play import (
    EpisodeResult,
    Interrupted,
    check_fits,
    parallel_environments,
    play,
)
from svea.runs.load import load_agent, load_config, read_config
from svea.runs.records import (
    Record,
    append_records,
    episode_key,
    latest,
    read_records,
    replayed,
)
from svea.speed import EXACT, check_one_arithmetic, choose_device, explained
from svea.speed.device import multiply_float32, sharing_cores

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
    """Agents that play at once, and modes of an agent where there are fewer agents."""
    vary: tuple[str, ...] = ()
    """Factors, or `all` that a task has: they take `values` each, one at a time."""
    values: int = 9

    def check(self) -> None:
        """Refuse unknown names and empty evaluations before anything starts."""
        for name in self.vary:
            if name != ALL:
                check_factor(name)
        between(2, 1000).check("values", self.values)
        if self.vary and self.task:
            raise UserError(
                f"task is {self.task!r} and vary is {listed(self.vary)}; allowed: one of both"
            )
        if not self.modes and not self.vary:
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
        between(0, 2**63 - 1).check("seed", self.seed)
        between(0, 1024).check("envs", self.environments)
        between(1, 1024).check("jobs", self.jobs)


@dataclass(frozen=True)
class _Environments:
    """One kind of environment, and the runs to be evaluated in it."""

    mode: str
    """As records name it."""
    arguments: dict[str, Any]
    """Of ``make_env``."""
    variation: dict[str, float]
    """Of ``reset``: where nothing else differs, environments are used again."""
    episodes: int | str
    step_timeout: float
    """Of the first run."""
    runs: list[Path] = field(default_factory=list)
    random: dict[str, Record] = field(default_factory=dict)
    """The random policy's episodes: played for one run, they are those of all."""

    @property
    def provenance(self) -> dict[str, Any]:
        """What records say of the pictures that the environments cannot know before."""
        return {"mode": self.mode} | video_provenance(self.variation) if self.variation else {}

    def shares_with(self, other: Self | None) -> bool:
        """Whether the other's environments can be used."""
        own = (self.arguments, self.episodes)
        return other is not None and own == (other.arguments, other.episodes)


class Scoring:
    """An evaluation of runs: episodes on record are kept, missing ones are played and recorded.

    Where one agent plays at a time, runs with the same task share their environments.
    """

    def __init__(
        self, runs: Sequence[Path], request: Request, again: bool = False, store: bool = True
    ) -> None:
        """Read what the runs, or exports, have on record.

        With `again` recorded episodes are played, too. Without `store` records are neither read nor
        written, and the first problem is raised.
        """
        if not runs:
            raise UserError(
                "no run to evaluate; name at least one folder made by `svea train`, or an agent of "
                "the zoo, before --modes and --episodes: they take all words after them"
            )
        request.check()
        self.runs, self.request, self.store = list(runs), request, store
        self.records: dict[Path, list[Record]] = {run: [] for run in runs}
        self.new: dict[Path, list[Record]] = {run: [] for run in runs}
        self.exit_code = 0
        self._places: dict[str, dict[str, None]] = defaultdict(dict)
        self._recorded = {run: [] if again or not store else _recorded(run) for run in runs}
        self._known = {r: {episode_key(one): one for one in self._recorded[r]} for r in runs}
        self._counting = {r: set(map(episode_key, latest(self._recorded[r]))) for r in runs}
        self._reporting, self._loading = threading.RLock(), threading.Lock()
        self._stopping, self._warn_once = threading.Event(), functools.cache(warn)
        self._loaded = functools.lru_cache(maxsize=max(4, request.jobs))(self._load)
        self._precisions: set[str] = set()
        self._kinds = self._find_kinds()

    @property
    def problems(self) -> list[str]:
        """What went wrong, each with the places that the error itself does not name."""
        named = {problem: listed([*filter(None, where)]) for problem, where in self._places.items()}
        return [f"{problem} ({where})" if where else problem for problem, where in named.items()]

    @property
    def total(self) -> int | None:
        """How many episodes there will be; None where a mode's worlds are not counted yet."""
        counts = [kind.episodes for kind in self._kinds for _ in kind.runs]
        numbers = [count for count in counts if isinstance(count, int)]
        return len(self.request.policies) * sum(numbers) if numbers == counts else None

    @property
    def played(self) -> int:
        """How many episodes were played, and not on record."""
        return sum(map(len, self.new.values()))

    @property
    def kept(self) -> str:
        """What an interrupted evaluation has on record."""
        return f"{plural(self.played, 'new episode')} recorded, the same command continues"

    def replayed(self) -> Counter[str]:
        """How many recorded episodes were played again, by why."""
        of_runs = (replayed(records, self._recorded[run]) for run, records in self.new.items())
        return sum(of_runs, Counter[str]())

    def play(
        self,
        on_episode: Callable[[Path, Record], None] = lambda run, record: None,
        on_stop: Callable[[], None] = lambda: None,
    ) -> None:
        """Play and record; what fails is a problem, and the rest is played.

        Args:
            on_episode: called with each record and its run, by one thread at a time.
            on_stop: called when Ctrl-C came and several agents still play, which takes seconds.
        """
        self._on_episode, self._device = on_episode, choose_device(self.request.device)
        if self._kinds:
            asked = (mode_of_label(kind.mode, self.request.task) for kind in self._kinds)
            evaluated = dict.fromkeys(asked)
            check_episodes(self.request.episodes, evaluated)
        with sharing_cores(self._device, self.request.jobs):
            if self.request.jobs == 1:
                self._play_kinds(self._kinds)
            else:
                self._play_at_once(on_stop)
        self.records = {run: records for run, records in self.records.items() if records}

    def _find_kinds(self) -> list[_Environments]:
        """The kinds of environment that are needed, task by task and mode by mode."""
        kinds: dict[str, _Environments] = {}
        request = self.request
        for run in self.runs:
            try:
                config = load_config(run)
            except SveaError as error:
                self._note(run, "", error)
                continue
            self._precisions.add(config.precision)
            on_problem = functools.partial(self._note, run)
            for mode in self._modes_of(request.task or config.task, on_problem):
                name, given = parse_mode(mode, request.task or config.task)
                variation = given.get("variation", {})
                shown = name if variation else mode
                arguments = config.environment_in(shown, request.data_dir, request.task)
                label, count = label_mode(mode, request.task), episodes_in(request.episodes, mode)
                kind = _Environments(label, arguments, variation, count, config.step_timeout)
                key = json.dumps([arguments, variation], sort_keys=True)
                kinds.setdefault(key, kind).runs.append(run)
        return list(kinds.values())

    def _modes_of(self, task: str, on_problem: Callable[[str, UserError], None]) -> list[str]:
        """The modes to evaluate on a task, with those of its factors."""
        found = modes_for(task, self.request.modes, on_problem)
        for name in self.request.vary:
            try:
                found += vary_modes([name], self.request.values, task)
            except UserError as error:
                on_problem(name, error)
        return list(dict.fromkeys(found))

    # Playing -----------------------------------------------------------------------------------

    def _play_at_once(self, on_stop: Callable[[], None]) -> None:
        """Several agents at once, and modes of an agent where there are fewer agents."""
        check_one_arithmetic(self._precisions, [self._device.type == "cuda"])
        parts = max(1, self.request.jobs // len(self.runs))
        shares = []
        for run in self.runs:  # which still share the random policy's episodes
            own = [replace(kind, runs=[run]) for kind in self._kinds if run in kind.runs]
            shares += [own[first::parts] for first in range(min(parts, len(own)))]
        with ThreadPoolExecutor(self.request.jobs) as pool:
            playing = [pool.submit(self._play_kinds, share) for share in shares]
            try:
                wait(playing)
            except BaseException:  # Ctrl-C reaches this thread alone
                self._stopping.set()
                on_stop()
                pool.shutdown(cancel_futures=True)
                raise
        for one in playing:
            one.result()  # what no run may raise, after all others have ended

    def _play_kinds(self, kinds: Sequence[_Environments]) -> None:
        """One kind of environment after the other; the next one's processes start meanwhile.

        Those of one kind that differ in their variation are the same processes. A run that fails
        does not stop the others.
        """
        with ExitStack() as stack:  # which ends the processes that Ctrl-C leaves
            coming = self._start_early(kinds[0], stack) if kinds else None
            for kind, following in itertools.pairwise([*kinds, None]):
                assert kind is not None
                workers, stays = coming, kind.shares_with(following)
                coming = self._start_early(following, stack) if following and not stays else None
                for run in kind.runs:
                    try:
                        if workers is None:
                            workers = self._start(kind, stack)
                        workers.wait()
                        workers.options = {"variation": kind.variation} if kind.variation else None
                        with explained(CURE):
                            self._play_run(run, kind, workers)
                    except SveaError as error:
                        self._note(run, kind.mode, error)
                        if workers:
                            workers.close()  # dead, or in the middle of an episode
                        workers = None
                if stays:
                    coming = workers
                elif workers:
                    workers.close()

    def _start_early(self, kind: _Environments, stack: ExitStack) -> Workers | None:
        """Environments, or none: what fails is tried again, and noted, when it is needed."""
        try:
            return self._start(kind, stack)
        except SveaError:
            return None

    def _start(self, kind: _Environments, stack: ExitStack) -> Workers:
        """As many environments as are asked for and needed."""
        self._check_stop()
        count = parallel_environments(self.request.environments, kind.episodes)
        together = environments_per_process(kind.arguments["task"], self._device.type)
        environments, timeout = [kind.arguments] * count, kind.step_timeout
        workers = Workers(environments, per_process=together, step_timeout=timeout, wait=False)
        return stack.enter_context(workers)

    def _play_run(self, run: Path, kind: _Environments, workers: Workers) -> None:
        """One run in one mode: pass on what is known, play the rest."""
        self._check_stop()
        agent, config, weights = self._loaded(run, threading.get_ident())
        multiply_float32(self._device, config.precision == EXACT)  # another agent may be loaded
        spaces = workers.action_size, workers.choices, workers.parts
        check_fits(agent, *spaces, kind.arguments["task"])
        if warning := other_renderer(run, config, workers.provenance):
            with self._reporting:
                self._warn_once(warning)
        known = self._known[run] | kind.random
        worlds = workers.provenance.get("worlds", 1)
        seeds = evaluation_seeds(self.request.seed, kind.episodes, worlds)
        for name in self.request.policies:
            made_with = workers.provenance | kind.provenance
            template = record_template(config, name, agent.decision, weights, kind.mode, made_with)
            if name == "agent" and (pictures := read_config(run).get("pictures")):
                template["pictures"] = pictures  # those of training
            missing = []
            for number, seed in enumerate(seeds):
                if record := known.get(episode_key(template | {"seed": seed})):
                    self._take(run, record | template | {"episode": number})
                else:
                    missing.append(seed)
            if name == "agent":
                policy = deployed_policy(agent, config)
            else:
                policy = random_policy(workers.action_size, workers.choices)

            def finished(
                episode: EpisodeResult, template: Record = template, policy: Any = policy
            ) -> None:
                record = record_of(template, seeds.index(episode.seed), episode)
                if isinstance(policy, AdaptingPolicy):
                    record["adaptation_seconds"] = round(policy.seconds(episode), 6)
                if record["policy"] == "random":
                    kind.random[episode_key(record)] = record
                self._take(run, record)

            play(policy, workers, missing, should_stop=self._stopping.is_set, on_episode=finished)

    def _check_stop(self) -> None:
        """End this thread after Ctrl-C: what it would start or load next takes seconds."""
        if self._stopping.is_set():
            raise Interrupted

    def _load(self, run: Path, thread: int) -> tuple[Agent, Config, str]:
        """An agent of this thread (some adapt), its configuration, and a hash of its weights."""
        with self._loading:  # making one draws from torch's own generator
            self._check_stop()  # others may have been loaded first
            agent = load_agent(run, device=self.request.device)
        return agent, load_config(run), fingerprint(agent)

    # What comes of it --------------------------------------------------------------------------

    def _take(self, run: Path, record: Record) -> None:
        """Count an episode; write it down if it is new, or was played with other pictures since."""
        with self._reporting:
            self.records[run].append(record)
            key = episode_key(record)
            if key not in self._known[run]:
                self.new[run].append(record)
            if self.store and key not in self._counting[run]:
                try:
                    append_records(run, [record])
                except StorageError as error:  # the results still count
                    self._note("", "", error)
            self._on_episode(run, record)

    def _note(self, run: Path | str, mode: str, error: SveaError) -> None:
        """Remember what could not be evaluated, and where as far as the error does not say."""
        if not self.store:
            raise error
        where = [str(run)] if str(run) not in str(error) else []
        where += [f"in {mode}"] if mode and repr(mode) not in str(error) else []
        with self._reporting:
            self._places[str(error)][" ".join(where)] = None
            self.exit_code = self.exit_code or error.exit_code


def record_template(
    config: Config, policy: str, decision: int, weights: str, mode: str, provenance: Record
) -> Record:
    """What the records of one run, policy and mode have in common."""
    is_agent, worlds = policy == "agent", name_worlds(config.train_mode, config.train_vary)
    adapted = ", adapted" if config.auxiliary == "pad" else ""  # another protocol
    return {
        "policy": policy,
        "task": config.task,
        "method": config.method,
        "augment": config.augment,
        "run_seed": config.seed,
        "decision": decision if is_agent else 0,
        "weights": weights if is_agent else None,
        "actions": config.eval_actions + adapted if is_agent else "uniform",
        "mode": mode,
        **({"trained_in": worlds} if is_agent and worlds else {}),
        "svea_version": __version__,
        "provenance": provenance,
    }


def other_renderer(run: Path, config: Config, provenance: Record) -> str:
    """What to say where another renderer than the run's draws; nothing if it is the run's.

    A look that the rasteriser leaves to OpenGL by itself is no other renderer.
    """
    made_with = read_config(run).get("made_with")
    before = made_with.get("renderer") if isinstance(made_with, dict) else None
    here = provenance.get("renderer")
    if before is None or here is None or before == here:
        return ""
    rastered = str(before).startswith(PROGRAM) and not here.startswith(PROGRAM)
    if rastered and choose_renderer(config.renderer) == RASTER:
        return ""
    return f"{run} learned from pictures of {before!r}, and is shown those of {here!r} here"


def record_of(template: Record, number: int, episode: EpisodeResult) -> Record:
    """One line of eval.jsonl."""
    if not math.isfinite(episode.total):
        raise NumericsError(f"the return of the episode with seed {episode.seed} is not finite")
    return template | {
        "episode": number,
        "seed": episode.seed,
        "world": episode.world,
        "return": episode.total,
        "length": episode.length,
        **({} if episode.success is None else {"success": episode.success}),
        **({} if episode.drawn_by is None else {"drawn_by": episode.drawn_by}),
    }


def fingerprint(agent: Agent) -> str:
    """A hash of the weights that act and judge: the same for a run's checkpoint and its export."""
    digest = hashlib.sha256()
    for name, tensor in sorted(agent.state_dict().items()):
        if name.startswith(("trunk.", "actor.", "critic.")):
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]


def _recorded(run: Path) -> list[Record]:
    """A run's records; a folder that cannot be read is named when it is evaluated."""
    try:
        return read_records(run)
    except StorageError:
        return []


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
    vary: Iterable[str] = (),
    values: int = 9,
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
        vary: factors such as ``light.strength``, or ``all``: also evaluate with each at several
            values over its range, in modes such as ``light.strength=0.4``.
        values: how many, the training value among them.

    Example:
        >>> records = evaluate("runs/demo", ["train", "color_hard"], episodes=10)  # doctest: +SKIP
        >>> sum(r["return"] for r in records if r["mode"] == "train") / 10  # doctest: +SKIP
    """
    modes, task, vary = tuple(modes), name_task(task), tuple(vary)
    modules.trust(task)
    if task == load_config(run, trust).task:
        task = ""
    request = Request(
        modes, episodes, seed, (policy,), environments, device, data_dir, task,
        vary=vary, values=values,
    )  # fmt: skip
    scoring = Scoring([Path(run)], request, store=False)
    scoring.play()
    records = scoring.records.get(Path(run), [])
    order = list(dict.fromkeys(record["mode"] for record in records))
    return sorted(records, key=lambda record: (order.index(record["mode"]), record["episode"]))
