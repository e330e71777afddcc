"""Evaluation: whole episodes in any mode, in parallel, each a function of its seed."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console

from svea import envs
from svea.envs.vector import Workers
from svea.errors import StorageError, UserError, unknown_name

if TYPE_CHECKING:
    from svea.agents import SAC
    from svea.config import Config

Policy = Callable[[NDArray[np.uint8]], NDArray[np.float32]]

TRAINING, EVALUATION = 0, 1  # episodes of different purposes never share a seed


class Interrupted(Exception):
    """Evaluation was asked to stop before its end."""


@dataclass
class Episode:
    """The outcome of one episode."""

    seed: int
    total: float = 0.0
    length: int = 0
    success: bool | None = None


def episode_seed(seed: int, purpose: int, environment: int, episode: int) -> int:
    """The seed of an episode: well mixed, and the same on every machine."""
    mixed = np.random.SeedSequence([seed, purpose, environment, episode]).generate_state(1)[0]
    return int(mixed) & 0x7FFFFFFF


def evaluation_seeds(seed: int, episodes: int) -> list[int]:
    """Seeds of an evaluation; the same for every agent and mode, so that comparisons are paired."""
    return [episode_seed(seed, EVALUATION, 0, k) for k in range(episodes)]


def parallel_environments(requested: int, episodes: int) -> int:
    """How many environments evaluate at once: as asked, or one per core."""
    from svea.speed import available_cores

    return min(episodes, requested or min(16, available_cores()))


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
    waiting = iter(range(len(episodes)))
    playing: dict[int, int] = {}  # worker -> episode

    def start(worker: int) -> None:
        episode = next(waiting, None)
        if episode is None:
            playing.pop(worker, None)
        else:
            playing[worker] = episode
            workers.reset([episodes[episode].seed], [worker])

    for worker in range(len(workers)):
        start(worker)
    while playing:
        if should_stop():
            raise Interrupted
        actions = policy(workers.observations)
        active = list(playing)
        workers.send(actions[active], [None] * len(active), active)
        for worker, step in zip(active, workers.receive(), strict=True):
            episode = episodes[playing[worker]]
            episode.total += step.reward
            episode.length += 1
            if "success" in step.info:
                episode.success = bool(step.info["success"])
            if step.done:
                on_episode(episode)
                start(worker)
    return episodes


def agent_policy(agent: SAC, config: Config) -> Policy:
    """The agent's actions as evaluations take them, with a generator of their own if sampled."""
    if config.eval_actions == "most_likely":
        return agent.act
    generator = torch.Generator(agent.device).manual_seed(config.seed)
    return lambda observations: agent.act(observations, explore=True, generator=generator)


def random_policy(actions: int, seed: int) -> Policy:
    """Actions drawn uniformly."""
    generator = np.random.default_rng(seed)
    return lambda observations: generator.uniform(-1, 1, (len(observations), actions)).astype(
        np.float32
    )


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
    on_episode: Callable[[str, Episode], None] = lambda mode, episode: None,
) -> list[dict[str, Any]]:
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
        on_episode: called with the mode and each finished episode.

    Example:
        >>> records = evaluate("runs/demo", ["train", "color_hard"], episodes=10)  # doctest: +SKIP
        >>> sum(r["return"] for r in records if r["mode"] == "train") / 10  # doctest: +SKIP
    """
    from svea.export import load_agent, load_config

    config = load_config(Path(run))
    modes = list(modes)
    check_request(modes, episodes, seed, environments)
    if policy not in ("agent", "random"):
        raise unknown_name("policy", str(policy), ["agent", "random"])
    agent = load_agent(run, device=device)
    records = []
    for mode in modes:
        count = parallel_environments(environments, episodes)
        specification = config.environment | {"mode": mode}
        if data_dir:
            specification["data_dir"] = data_dir
        with Workers([specification] * count) as workers:
            choose = (
                agent_policy(agent, config)
                if policy == "agent"
                else random_policy(workers.action_size, seed)
            )
            played = play(
                choose,
                workers,
                evaluation_seeds(seed, episodes),
                on_episode=lambda episode, mode=mode: on_episode(mode, episode),  # type: ignore[misc]
            )
            provenance = workers.provenance
        records += [
            record(config, agent, policy, mode, k, episode, provenance)
            for k, episode in enumerate(played)
        ]
    return records


def check_request(modes: list[str], episodes: int, seed: int, environments: int) -> None:
    """Refuse unknown modes and empty evaluations before anything starts."""
    if not modes:
        raise UserError("no modes to evaluate; name at least one, e.g. --modes train color_hard")
    for mode in modes:
        envs.check_mode(mode)
    if episodes < 1:
        raise UserError(f"episodes is {episodes}; allowed: 1 or more")
    if not 0 <= seed < 2**63:
        raise UserError(f"seed is {seed}; allowed: 0 to 2**63 - 1")
    if not 0 <= environments <= 1024:
        raise UserError(f"envs is {environments}; allowed: 0 (one per core) to 1024")


def record(
    config: Config,
    agent: SAC,
    policy: str,
    mode: str,
    number: int,
    episode: Episode,
    provenance: dict[str, Any],
) -> dict[str, Any]:
    """One line of eval.jsonl."""
    line: dict[str, Any] = {
        "policy": policy,
        "task": config.task,
        "method": config.method,
        "augment": config.augment,
        "run_seed": config.seed,
        "decision": agent.decision,
        "actions": config.eval_actions if policy == "agent" else "uniform",
        "mode": mode,
        "episode": number,
        "seed": episode.seed,
        "return": episode.total,
        "length": episode.length,
        "provenance": provenance,
    }
    return line if episode.success is None else line | {"success": episode.success}


def evaluate_and_record(
    run: Path,
    modes: list[str],
    episodes: int,
    *,
    seed: int,
    random_policy: bool,
    videos: bool,
    environments: int,
    device: str,
    data_dir: str | None,
    as_json: bool,
) -> None:
    """The verb `svea eval` for one run: play, append to eval.jsonl, record videos, print."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from svea.media import record_episode

    records = []
    policies = ["agent", "random"] if random_policy else ["agent"]
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, transient=True, console=stderr_console()) as progress:
        bar = progress.add_task(str(run), total=len(policies) * len(modes) * episodes)
        for policy in policies:
            records += evaluate(
                run, modes, episodes, seed=seed, policy=policy, environments=environments,
                device=device, data_dir=data_dir,
                on_episode=lambda mode, episode: progress.advance(bar),
            )  # fmt: skip
    if as_json:
        for line in records:
            print(json.dumps(line))
    else:
        print_returns(run, records)
    append_records(run, records)  # after printing: a shared folder may be read-only
    for mode in modes if videos else []:
        record_episode(run, mode, seed=seed, device=device, data_dir=data_dir)


def append_records(run: Path, records: list[dict[str, Any]]) -> None:
    """Put records into eval.jsonl, in place of older ones of the same episodes."""
    path = run / "eval.jsonl"

    def key(line: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(line.get(k) for k in ("policy", "decision", "mode", "seed"))

    old = []
    if path.exists():
        for text in path.read_text().splitlines():
            with contextlib.suppress(ValueError):  # a half line of a killed evaluation
                old.append(json.loads(text))
    new = {key(line) for line in records}
    lines = [line for line in old if key(line) not in new] + records
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_text("".join(json.dumps(line, allow_nan=False) + "\n" for line in lines))
        os.replace(beside, path)
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error}") from error


def print_returns(run: Path, records: list[dict[str, Any]]) -> None:
    """A line per policy and mode."""
    print(f"{run}: mean return ± standard deviation over episodes")
    groups: dict[tuple[str, str], list[float]] = {}
    for line in records:
        made_with = envs.describe(line["provenance"]) if line["provenance"] else line["mode"]
        groups.setdefault((line["policy"], made_with), []).append(line["return"])
    for (policy, mode), returns in groups.items():
        print(
            f"  {policy:<7} {mode:<28} {np.mean(returns):7.1f} ± {np.std(returns):5.1f}"
            f"   ({len(returns)} episodes)"
        )


def stderr_console() -> Console:
    """Progress goes to stderr, so that `--json` can be piped."""
    return Console(stderr=True)
