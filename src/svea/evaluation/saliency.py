"""Where an agent looks: which pixels move its Q-value or its action, and what a ViT attends to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from svea.agents.sgqn import guided_gradient
from svea.core.errors import UserError, between
from svea.evaluation import sheets
from svea.evaluation.film import Recording, record_each
from svea.runs.load import has_critic, load_agent, load_config, require_critic

if TYPE_CHECKING:
    from svea.agents.agent import Agent

DIMMED = 0.35  # of a picture's brightness stays under its map


def input_gradients(agent: Agent, images: Tensor, actions: Tensor, guided: bool = False) -> Tensor:
    """How much each pixel would move the Q-value: |dQ/dpixel|, the largest over frames and colours.

    Args:
        agent: whose Q.
        images: (B, 9, H, W) in [0, 1].
        actions: (B, A).
        guided: the guided gradient of the first Q, which SGQN trains with: every ReLU passes back
            what is positive alone.

    Returns:
        (B, H, W), the 99th percentile of each picture at 1.
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
    matrices are multiplied (Abnar and Zuidema, 2020). None for an encoder without attention.

    Returns:
        (B, H, W), the 99th percentile of each picture at 1.
    """
    maps = getattr(agent.trunk, "attention", None)
    if maps is None:
        return None
    layers = maps(agent.masked(images)).mean(2)  # (B, layers, tokens, tokens)
    passed = torch.eye(layers.shape[-1], device=layers.device).expand(len(layers), -1, -1)
    for layer in layers.unbind(1):
        passed = (0.5 * layer + 0.5 * torch.eye(layer.shape[-1], device=layer.device)) @ passed
    reached = passed[:, 0, 1:]  # (B, patches)
    side = round(reached.shape[1] ** 0.5)
    coarse = reached.unflatten(1, (1, side, side))
    return scaled(F.interpolate(coarse, images.shape[-2:], mode="bilinear")[:, 0])


def scaled(maps: Tensor) -> Tensor:
    """Maps (B, H, W) between 0 and 1; their few largest values must not dim all others."""
    top = maps.flatten(1).float().quantile(0.99, dim=1).clamp_min(1e-12)
    return (maps / top[:, None, None]).clamp(0, 1)


def overlay(images: Tensor, maps: Tensor) -> Tensor:
    """The newest frame (B, 3, H, W) in dim grey, with its map as heat from red to yellow."""
    grey = images[:, -3:].mean(1, keepdim=True) * DIMMED
    heat = torch.stack([maps.clamp(0, 0.5) * 2, maps.clamp(0.5, 1) * 2 - 1, 0 * maps], 1)
    return (grey + heat * (1 - DIMMED)).clamp(0, 1)


def saliency(
    run: Path,
    modes: Sequence[str],
    out: Path,
    *,
    samples: int = 4,
    guided: bool = False,
    seed: int = 0,
    device: str = "cpu",
    data_dir: str | None = None,
    task: str = "",
    on_problem: Callable[[str, UserError], None],
) -> Path:
    """Write a sheet: the same episode in several modes, and below it where the agent looks.

    Of an agent that is stored without its Q-functions, as those of the zoo are: what moves its
    action.

    Args:
        run: folder of a run or of an export.
        modes: side by side.
        out: the PNG.
        samples: moments of the episode, evenly spread.
        guided: also show the guided gradient of Q.
        seed: of the evaluation whose first episode is shown.
        device: where the agent computes.
        data_dir: folder with benchmark data; default: the run's, then SVEA_DATA.
        task: play in this task instead of the run's.
        on_problem: called with each mode that does not fit the task; the rest is shown.
    """
    between(1, 20).check("samples", samples)
    config, agent = load_config(run), load_agent(run, device=device)
    if guided:
        require_critic(agent)
    options: dict[str, Any] = {"seed": seed, "size": None, "data_dir": data_dir, "task": task}
    shown = {
        recording.mode: look(agent, recording, samples, guided)
        for recording in record_each(agent, config, modes, on_problem, **options)
    }
    if not shown:
        raise UserError(f"nothing to look at: no mode of {task or config.task} could be shown")
    rows = list(next(iter(shown.values())))
    cells = [[shown[mode][row].numpy() for mode in shown] for row in rows]
    scale = max(1, 160 // cells[0][0].shape[-1])  # small pictures are enlarged
    return sheets.save(sheets.sheet_of(rows, list(shown), cells, scale), out)


def look(
    agent: Agent, recording: Recording, samples: int, guided: bool = False
) -> dict[str, Tensor]:
    """Rows of the sheet for one episode: what the agent saw, and the maps over it."""
    chosen = np.linspace(0, len(recording.observations) - 1, samples).astype(int)
    observations = torch.as_tensor(np.stack([recording.observations[k] for k in chosen]))
    actions = torch.as_tensor(np.stack([recording.actions[k] for k in chosen])).to(agent.device)
    images = agent.views(observations.to(agent.device))["clean", 0].float()
    rows = {"seen": images}
    for name, maps in _maps(agent, images, actions, guided):
        smooth = F.avg_pool2d(maps[:, None], 3, 1, padding=1)[:, 0]  # strides leave a chequerboard
        rows[name] = overlay(images, scaled(smooth))
    if agent.masker is not None:
        rows["mask"] = agent.masker.masks(images)[:, -1:].detach().repeat(1, 3, 1, 1)
    attended = attention(agent, images)
    if attended is not None:
        rows["attention"] = overlay(images, attended)
    return {name: pictures.cpu() for name, pictures in rows.items()}


def _maps(
    agent: Agent, images: Tensor, actions: Tensor, guided: bool
) -> Iterator[tuple[str, Tensor]]:
    """Gradients with the names of their rows."""
    if not has_critic(agent):
        yield "moves the action", action_gradients(agent, images)
        return
    yield "moves Q", input_gradients(agent, images, actions)
    if guided:
        yield "raises Q, guided", input_gradients(agent, images, actions, guided=True)
