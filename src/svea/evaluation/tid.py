"""TID: does a Q-function look at the task, in every frame alike? By the simulator's segmentation.

The task-identification measure of SimGRL (Song et al., 2024), and the same of the policy for agents
that are stored without Q-functions. docs/evaluation.md defines both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from svea.agents.agent import Agent
from svea.agents.sgqn import guided_action_gradient, guided_gradient, most_influential
from svea.core.errors import UserError, between
from svea.envs import is_foreign
from svea.evaluation.analysis import write_analysis
from svea.evaluation.film import Recording, record_each
from svea.networks.parts import COLOURS
from svea.runs.load import has_critic, load_agent, load_config

AUTO = "auto"
"""As many pixels as the task has, observation by observation."""


class TID(NamedTuple):
    """The measure over several observations."""

    score: float
    """Mean overlap of what is looked at and the task's pixels, 0 to 1."""
    variance: float
    """Mean variance over a stack's frames of 100 times each frame's overlap."""
    observations: int
    """That count: in every frame of them something of the task shows."""


def tid_of(influences: Tensor, objects: Tensor, quantile: float | None) -> TID:
    """The overlap of the most influential pixels with the task's, |O ∩ M| / √(|O| |M|).

    Args:
        influences: of each pixel on Q or the action, (N, frames, H, W), at least 0.
        objects: where the task is, (N, frames, H, W) bool.
        quantile: share of a frame's pixels that are not looked at; None: of the pixels of all its
            frames, what the task leaves.
    """
    shown = objects.flatten(2).any(2).all(1)
    scores, variances = [], []
    for influence, wanted in zip(influences[shown], objects[shown], strict=True):
        rho = 1 - float(wanted.double().mean()) if quantile is None else quantile
        seen = most_influential(influence[None], rho)[0]
        both, area, looked = ((m.flatten(1).sum(1)).double() for m in (seen & wanted, wanted, seen))
        scores.append(both.sum() / (area.sum() * looked.sum()).sqrt())
        variances.append((100 * both / (area * looked).sqrt()).var(correction=0))
    if not scores:
        return TID(float("nan"), float("nan"), 0)
    score, variance = (float(torch.stack(values).mean()) for values in (scores, variances))
    return TID(score, variance, len(scores))


def tid_in(agent: Agent, recording: Recording, samples: int, quantile: float | None) -> TID:
    """The measure at evenly spread moments of an episode, for the actions that the agent took."""
    last = len(recording.observations) - 1
    chosen = np.unique(np.linspace(0, last, samples).astype(int))

    def picked(values: Sequence[Any]) -> Tensor:
        return torch.as_tensor(np.stack([values[k] for k in chosen])).to(agent.device)

    images = agent.views(picked(recording.observations))["clean", 0]
    if has_critic(agent):
        gradient = guided_gradient(agent, images, picked(recording.actions))
    else:
        gradient = guided_action_gradient(agent, images)
    influences = gradient.abs().unflatten(1, (-1, COLOURS)).sum(2)
    objects = agent.view_maker.clean(picked(recording.objects).to(torch.uint8)).bool()
    return tid_of(influences, objects, quantile)


def tid(
    run: Path,
    modes: Sequence[str],
    *,
    quantile: str = AUTO,
    samples: int = 32,
    seed: int = 0,
    device: str = "cpu",
    data_dir: str | None = None,
    on_problem: Callable[[str, UserError], None],
) -> list[dict[str, Any]]:
    """Play an evaluation's first episode in each mode and measure there; keep it for the report.

    Args:
        run: folder of a run or of an export.
        modes: where.
        quantile: `auto`, or a number between 0 and 1.
        samples: moments of each episode.
        seed: of the evaluation.
        device: where the agent computes.
        data_dir: folder with benchmark data; default: the run's, then SVEA_DATA.
        on_problem: called with each mode that does not fit the task.

    Returns:
        A row per mode, as kept in RUN/analysis/tid.json (tid-action.json for an agent without
        Q-functions); none if no mode fits the task.
    """
    rho = read_quantile(quantile)
    between(1, 1000).check("samples", samples)
    config = load_config(run)
    if is_foreign(config.task):
        raise UserError(
            f"{run} learned {config.task}, an environment of yours: TID needs the simulator's "
            "segmentation. Allowed: runs of tasks that svea simulates"
        )
    agent, rows = load_agent(run, device=device), []
    of = "Q" if has_critic(agent) else "action"
    options: dict[str, Any] = {"seed": seed, "size": None, "data_dir": data_dir, "objects": True}
    for recording in record_each(agent, config, modes, on_problem, **options):
        found = tid_in(agent, recording, samples, rho)
        rows.append({"mode": recording.mode, "of": of, "decision": agent.decision}
                    | found._asdict())  # fmt: skip
    about = {"decision": agent.decision, "quantile": quantile, "samples": samples, "seed": seed}
    if rows:  # else what an earlier call found stays
        name = "tid" if of == "Q" else "tid-action"
        write_analysis(run, name, about, [_without_nan(row) for row in rows])
    return rows


def read_quantile(text: str) -> float | None:
    """The share of pixels that are not looked at; None for `auto`.

    >>> read_quantile("auto"), read_quantile("0.95")
    (None, 0.95)
    """
    if text == AUTO:
        return None
    try:
        if 0 <= (value := float(text)) < 1:
            return value
    except ValueError:
        pass
    raise UserError(f"quantile is {text!r}; allowed: auto, or a number from 0 to below 1")


def _without_nan(row: dict[str, Any]) -> dict[str, Any]:
    """JSON has no NaN."""
    return {name: None if value != value else value for name, value in row.items()}
