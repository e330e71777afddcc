"""Analyses of an agent: noise of Q-targets, Q-values under augmentation, TID, and where it looks.

TID is the task-identification measure of SimGRL (Song et al., 2024): does a Q-function look at the
task, in every frame alike? By the simulator's segmentation; and the same of the policy for agents
that are stored without Q-functions.

docs/analyses.md defines every quantity. Each analysis of a run is kept as RUN/analysis/NAME.json,
where `svea report` finds it.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from svea.agents import Agent, make_replay
from svea.agents.diagnostics import (
    guided_action_gradient,
    guided_gradient,
    most_influential,
    q_gap_of,
    q_targets,
)
from svea.augment import augmentation
from svea.augment.images import ImageBank
from svea.config import Config
from svea.config.names import parse_augmentation
from svea.core import files, machine
from svea.core.errors import UserError, between
from svea.envs import is_foreign
from svea.evaluation import sheets
from svea.evaluation.film import Recording, record, record_each, stacked
from svea.networks.parts import COLOURS
from svea.replay import Batch, Replay
from svea.runs import checkpoint, layout
from svea.runs.load import has_critic, load_agent, load_config

GAP_AUGMENTATIONS = ("affine_jitter", "rotation", "conv", "overlay", "blur", "cutout", "shift")
"""Those that leave the size of an observation as it is: the six of the paper, and shift."""

Rows = list[dict[str, Any]]


def open_replay(run: Path, agent: Agent, seed: int = 0) -> Replay:
    """The replay buffer of an agent's run as its newest checkpoint left it, in main memory."""
    saved = None if layout.is_export(run) else checkpoint.load(run)
    if saved is None or not saved.segments:
        raise UserError(
            f"{run} has no replay buffer to take transitions from. Allowed: the folder of a run "
            "with a checkpoint (an export holds the agent alone, and so does --no-save-replay)"
        )
    stored, what = sum(one["size"] for one in saved.segments), f"the replay buffer of {run}"
    machine.require(stored, machine.available_bytes(), what, "Use a machine with more memory")
    replay = make_replay(load_config(run), 1 if agent.discrete else agent.actions, seed=seed)
    checkpoint.restore_replay(run, saved, replay)
    return replay


def _played(agent: Agent, config: Config, transitions: int, seed: int) -> Batch:
    """Moments of an episode in train; without rewards, which a gap does not need."""
    recording = record(agent, config, "train", seed=seed, size=None)
    last = len(recording.actions) - 1
    moments = np.unique(np.linspace(0, last, transitions).round().astype(int))
    observations = stacked(recording.observations, moments, agent)
    none = torch.zeros(len(moments))
    return Batch(observations, stacked(recording.actions, moments, agent), none, none, observations)


@dataclass(frozen=True)
class Sample:
    """An agent, and transitions of its own run."""

    run: Path
    config: Config
    agent: Agent
    batch: Batch
    draws: int
    seed: int

    @classmethod
    def of(
        cls, run: Path, transitions: int, draws: int, seed: int, device: str, gap: bool = False
    ) -> Sample:
        """Load the agent of a run and draw transitions from its replay.

        For `q_gap` (`gap`), an export that has its critic plays an episode instead.
        """
        between(1, 65_536).check("transitions", transitions)
        between(2, 65_536).check("draws", draws)
        agent = load_agent(run, device=device)
        config = load_config(run)
        if gap and layout.is_export(run) and has_critic(agent):
            batch = _played(agent, config, transitions, seed)
        else:
            batch = open_replay(run, agent, seed).sample(transitions)
        return cls(run, config, agent, batch.to(agent.device), draws, seed)

    def generator(self) -> torch.Generator:
        """A fresh generator of the sample's seed: each quantity sees the same draws."""
        return torch.Generator(self.agent.device).manual_seed(self.seed)

    def keep(self, name: str, rows: Rows) -> Rows:
        """Write the rows of an analysis of this sample; returns them."""
        about = {"transitions": len(self.batch.rewards), "draws": self.draws, "seed": self.seed}
        write_analysis(self.run, name, {"decision": self.agent.decision} | about, rows)
        return rows


def write_analysis(run: Path, name: str, about: dict[str, Any], rows: Rows) -> None:
    """Write the rows of an analysis, with what they are about, to RUN/analysis/NAME.json."""
    files.replace_json(layout.analysis_file(run, name), about | {"rows": rows})


def q_variance(sample: Sample) -> Rows:
    """Fig. 1, top: one row for what feeds the target, one for the strong view if there is one."""
    agent, strong = sample.agent, sample.config.augment
    seen = " and ".join(dict.fromkeys(view for view, _ in agent.streams.target))
    views: dict[str, Any] = {"target": (seen, None)}
    if strong != "none":
        views["strong"] = strong, (("strong", 0),)
    rows = []
    for view, (sees, drawn) in views.items():
        targets = q_targets(agent, sample.batch, sample.draws, sample.generator(), drawn)
        variance, level = float(targets.var(0).mean()), float(targets.abs().mean())
        relative = math.sqrt(variance) / level if level else None
        rows.append({"view": view, "sees": sees, "variance": variance, "relative_std": relative})
    return sample.keep("q-variance", rows)


def q_gap(sample: Sample, names: Iterable[str]) -> Rows:
    """Fig. 1, bottom: one row per augmentation."""
    config, agent, batch = sample.config, sample.agent, sample.batch
    chosen = choose_augmentations(names)
    folders = config.overlay_dir or None, config.data_dir or None
    level = float(agent.q_value(batch.observations, batch.actions).abs().mean())
    rows: Rows = []
    for name in chosen:
        augment = augmentation(name, lambda: ImageBank.find(*folders, agent.device))
        try:  # a fresh generator, so that no draw depends on what else is in the list
            gap = q_gap_of(agent, batch, augment, sample.draws, sample.generator())
            relative = gap / level if level else None
            rows.append({"augment": name, "gap": gap, "relative": relative})
        except UserError as error:  # e.g. boxes that are larger than the picture
            rows.append({"augment": name, "gap": None, "relative": None, "why": str(error)})
    return sample.keep("q-gap", rows)


def choose_augmentations(names: Iterable[str]) -> list[str]:
    """Spell out `all`, and refuse what cannot be compared with the plain observation."""
    chosen = list(dict.fromkeys(n for name in names for n in
                                (GAP_AUGMENTATIONS if name == "all" else [name])))  # fmt: skip
    if not chosen:
        raise UserError("no augmentation; name some, or all")
    for name in chosen:
        if any("crop" in way for way in parse_augmentation(name)):
            raise UserError("crop changes the size of an observation; leave it out")
    return chosen


# TID ---------------------------------------------------------------------------------------------

AUTO = "auto"
"""As many pixels as the task has, observation by observation."""


class TID(NamedTuple):
    """The measure over several observations: those in whose every frame the task shows."""

    score: float
    """Mean overlap of what is looked at and the task's pixels, 0 to 1."""
    variance: float
    """Mean variance over a stack's frames of 100 times each frame's overlap."""
    observations: int


def tid_of(influences: Tensor, objects: Tensor, quantile: float | None) -> TID:
    """The overlap of the most influential pixels with the task's, |O ∩ M| / √(|O| |M|).

    Influences on Q or the action, at least 0, and objects are (N, frames, H, W). The quantile is
    the share of a frame's pixels that are not looked at; None: what the task leaves of all frames.
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
    moments = np.unique(recording.spread(samples))
    images = agent.views(stacked(recording.observations, moments, agent))["clean", 0]
    if has_critic(agent):
        gradient = guided_gradient(agent, images, stacked(recording.actions, moments, agent))
    else:
        gradient = guided_action_gradient(agent, images)
    influences = gradient.abs().unflatten(1, (-1, COLOURS)).sum(2)
    objects = stacked(recording.objects, moments, agent).to(torch.uint8)
    return tid_of(influences, agent.view_maker.clean(objects).bool(), quantile)


def tid(
    run: Path,
    modes: Sequence[str],
    *,
    quantile: str = AUTO,
    samples: int = 32,
    seed: int = 0,
    device: str = "cpu",
    **options: Any,
) -> Rows:
    """Play an evaluation's first episode in each mode and measure there; a row per mode.

    It is kept for the report as RUN/analysis/tid.json (tid-action.json for an agent without
    Q-functions). The other options are those of `record_each`.
    """
    rho = read_quantile(quantile)
    between(1, 1000).check("samples", samples)
    config = load_config(run)
    if is_foreign(config.task):
        raise UserError(
            f"{run} learned {config.task}, an environment of yours: TID needs the simulator's "
            "segmentation. Allowed: runs of tasks that svea simulates"
        )
    agent = load_agent(run, device=device)
    about = {"of": "Q" if has_critic(agent) else "action", "decision": agent.decision}
    rows = [
        {"mode": played.mode, **about, **tid_in(agent, played, samples, rho)._asdict()}
        for played in record_each(
            agent, config, modes, seed=seed, size=None, objects=True, **options
        )
    ]
    how = {"decision": agent.decision, "quantile": quantile, "samples": samples, "seed": seed}
    write_analysis(run, "tid" if has_critic(agent) else "tid-action", how, [
        {name: None if value != value else value for name, value in row.items()}
        for row in rows  # JSON has no NaN
    ])  # fmt: skip
    return rows


def read_quantile(text: str) -> float | None:
    """The share of pixels that are not looked at; None for `auto`.

    >>> read_quantile("auto"), read_quantile("0.95")
    (None, 0.95)
    """
    if text == AUTO:
        return None
    with contextlib.suppress(ValueError):
        if 0 <= (value := float(text)) < 1:
            return value
    raise UserError(f"quantile is {text!r}; allowed: auto, or a number from 0 to below 1")


# Where an agent looks ----------------------------------------------------------------------------

DIMMED = 0.35  # of a picture's brightness stays under its map


def input_gradients(agent: Agent, images: Tensor, actions: Tensor, guided: bool = False) -> Tensor:
    """How much each pixel would move the Q-value: |dQ/dpixel|, the largest over frames and colours.

    From images (B, 9, H, W) in [0, 1] and actions (B, A) to maps (B, H, W), `scaled`. Guided is the
    gradient of the first Q with which SGQN trains: every ReLU passes back only what is positive.
    """
    if guided:
        return scaled(guided_gradient(agent, images, actions).abs().amax(1))
    pixels = images.detach().clone().requires_grad_(True)
    # Rows of a batch do not mix, so the gradient of the sum holds each row's own.
    (gradient,) = torch.autograd.grad(agent.q(pixels, actions).sum(), pixels)
    return scaled(gradient.abs().amax(1))


def action_gradients(agent: Agent, images: Tensor) -> Tensor:
    """How much each pixel would move the action, for agents that are stored without critic.

    The gradient of the action's length, |a|: one pass back, where the action's own numbers would
    take one each. The largest over frames and colours, (B, H, W), scaled as `input_gradients` is.
    """
    pixels = images.detach().clone().requires_grad_(True)
    with torch.enable_grad():
        actions = agent.choose(agent.trunk(agent.masked(pixels)), False, None)
        (gradient,) = torch.autograd.grad(actions.square().sum(-1).sqrt().sum(), pixels)
    return scaled(gradient.abs().amax(1))


@torch.no_grad()
def attention(agent: Agent, images: Tensor) -> Tensor | None:
    """How much of each patch reaches the class token: attention rolled out over the layers.

    Heads are averaged, the shortcut around each layer is half of what passes it, and the layers'
    matrices are multiplied (Abnar and Zuidema, 2020). Maps (B, H, W), `scaled`; None for an
    encoder without attention.
    """
    maps = getattr(agent.trunk, "attention", None)
    if maps is None:
        return None
    layers = maps(agent.masked(images)).mean(2)  # (B, layers, tokens, tokens)
    shortcut = torch.eye(layers.shape[-1], device=layers.device)
    passed = shortcut.expand(len(layers), -1, -1)
    for layer in layers.unbind(1):
        passed = (0.5 * layer + 0.5 * shortcut) @ passed
    reached = passed[:, 0, 1:]  # (B, patches)
    side = round(reached.shape[1] ** 0.5)
    coarse = reached.unflatten(1, (1, side, side))
    return scaled(F.interpolate(coarse, images.shape[-2:], mode="bilinear")[:, 0])


def scaled(maps: Tensor) -> Tensor:
    """Maps (B, H, W) between 0 and 1: each one's 99th percentile and what is above is 1."""
    top = maps.flatten(1).float().quantile(0.99, dim=1).clamp_min(1e-12)
    return (maps / top[:, None, None]).clamp(0, 1)


def overlay(images: Tensor, maps: Tensor) -> Tensor:
    """The newest frame (B, 3, H, W) in dim grey, with its map as heat from red to yellow."""
    grey = images[:, -3:].mean(1, keepdim=True) * DIMMED
    heat = torch.stack([maps.clamp(0, 0.5) * 2, maps.clamp(0.5, 1) * 2 - 1, 0 * maps], 1)
    return (grey + heat * (1 - DIMMED)).clamp(0, 1)


def influences(
    agent: Agent, images: Tensor, actions: Tensor, guided: bool = False
) -> dict[str, Tensor]:
    """What moves Q, by its name; of an agent that is stored without Q: what moves its action.

    Drawn over the newest frames (B, 3, H, W), smooth, because strides leave a chequerboard.
    """
    if not has_critic(agent):
        maps = {"moves the action": action_gradients(agent, images)}
    else:
        maps = {"moves Q": input_gradients(agent, images, actions)}
        if guided:
            maps["raises Q, guided"] = input_gradients(agent, images, actions, guided=True)
    smooth = {name: F.avg_pool2d(each[:, None], 3, 1, padding=1) for name, each in maps.items()}
    return {name: overlay(images, scaled(each[:, 0])) for name, each in smooth.items()}


def saliency(
    run: Path,
    modes: Sequence[str],
    out: Path,
    *,
    samples: int = 4,
    guided: bool = False,
    device: str = "cpu",
    **options: Any,
) -> Path:
    """Write a sheet: moments of the same episode in several modes, and where the agent looks.

    With `guided`, the guided gradient of Q too. The other options are those of `record_each`.
    """
    between(1, 20).check("samples", samples)
    config, agent = load_config(run), load_agent(run, device=device)
    if guided and not has_critic(agent):
        agent.critic()  # an error that says what is missing
    shown = {
        recording.mode: look(agent, recording, samples, guided)
        for recording in record_each(agent, config, modes, size=None, **options)
    }
    rows = list(next(iter(shown.values())))
    cells = [[shown[mode][row].numpy() for mode in shown] for row in rows]
    scale = max(1, 160 // cells[0][0].shape[-1])  # small pictures are enlarged
    return sheets.save(sheets.sheet_of(rows, list(shown), cells, scale), out)


def look(
    agent: Agent, recording: Recording, samples: int, guided: bool = False
) -> dict[str, Tensor]:
    """Rows of the sheet for one episode: what the agent saw, and the maps over it."""
    moments = recording.spread(samples)
    images = agent.views(stacked(recording.observations, moments, agent))["clean", 0].float()
    actions = stacked(recording.actions, moments, agent)
    rows = {"seen": images} | influences(agent, images, actions, guided)
    if agent.masker is not None:
        rows["mask"] = agent.masker.masks(images)[:, -1:].detach().repeat(1, 3, 1, 1)
    attended = attention(agent, images)
    if attended is not None:
        rows["attention"] = overlay(images, attended)
    return {name: pictures.cpu() for name, pictures in rows.items()}
