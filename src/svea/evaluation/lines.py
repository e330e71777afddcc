"""One line of eval.jsonl for each episode, and what tells agents apart in it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from svea import __version__
from svea.agents.agent import Agent
from svea.config import Config
from svea.core.errors import NumericsError, UserError
from svea.envs.rendering.backend import PROGRAM, RASTER, choose_renderer
from svea.envs.workers.pool import Workers
from svea.evaluation.play import EpisodeResult
from svea.runs.load import read_config
from svea.runs.records import Record


def template(
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


def _actions(config: Config) -> str:
    """How an agent's actions come about; adapted ones are another protocol."""
    return config.eval_actions + (", adapted" if config.auxiliary == "pad" else "")


def record(template: Record, number: int, episode: EpisodeResult) -> Record:
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
        **({} if episode.drawn_by is None else {"drawn_by": episode.drawn_by}),
    }


def check_actions(agent: Agent, size: int, choices: int, task: str) -> None:
    """Refuse a task whose actions are not those that the agent learned."""

    def said(count: int, is_choice: bool) -> str:
        return f"one of {count}" if is_choice else f"a vector of {count}"

    trained, here = said(agent.actions, agent.discrete), said(choices or size, bool(choices))
    if trained != here:
        raise UserError(
            f"an action of task {task!r} is {here}, but the agent learned with {trained}; name a "
            "task with the same actions"
        )


def fingerprint(agent: Agent) -> str:
    """A hash of the weights that act and judge: the same for a run's checkpoint and its export."""
    digest = hashlib.sha256()
    for name, tensor in sorted(agent.state_dict().items()):
        if name.startswith(("trunk.", "actor.", "critic.")):
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]
