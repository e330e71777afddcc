"""Where an agent looks: which pixels move its Q-value or its action, and what a ViT attends to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from svea.agents.diagnostics import guided_gradient
from svea.config.options import FRAMES
from svea.core.errors import between
from svea.evaluation import sheets
from svea.evaluation.film import Recording, record_each, stacked, views_at
from svea.runs.load import has_critic, load_agent, load_config

if TYPE_CHECKING:
    from svea.agents.agent import Agent

DIMMED = 0.35  # of a picture's brightness stays under its map


def side_by_side(channels: Tensor, each: int = 3 * FRAMES) -> Tensor:
    """Pictures next to one another that were behind: (B, P * each, H, W) -> (B, each, H, P * W)."""
    return torch.cat(channels.split(each, dim=1), dim=3)


def input_gradients(
    agent: Agent,
    images: Tensor,
    actions: Tensor,
    guided: bool = False,
    vectors: Tensor | None = None,
) -> Tensor:
    """How much each pixel would move the Q-value: |dQ/dpixel|, the largest over frames and colours.

    From images (B, 9, H, W) in [0, 1] and actions (B, A) to maps (B, H, W), `scaled`. Guided is the
    gradient of the first Q with which SGQN trains: every ReLU passes back only what is positive.
    Maps of two pictures are next to one another.
    """
    if guided:
        gradient = guided_gradient(agent, images, actions, vectors)
        return scaled(side_by_side(gradient.abs()).amax(1))
    pixels = images.detach().clone().requires_grad_(True)
    # Rows of a batch do not mix, so the gradient of the sum holds each row's own.
    (gradient,) = torch.autograd.grad(agent.q(pixels, actions, vectors).sum(), pixels)
    return scaled(side_by_side(gradient.abs()).amax(1))


def action_gradients(agent: Agent, images: Tensor, vectors: Tensor | None = None) -> Tensor:
    """How much each pixel would move the action, for agents that are stored without critic.

    The gradient of the action's length, |a|: one pass back, where the action's own numbers would
    take one each. The largest over frames and colours, (B, H, W), scaled as `input_gradients` is.
    """
    pixels = images.detach().clone().requires_grad_(True)
    with torch.enable_grad():
        actions = agent.choose(agent.encode(agent.masked(pixels), vectors), False, None)
        (gradient,) = torch.autograd.grad(actions.square().sum(-1).sqrt().sum(), pixels)
    return scaled(side_by_side(gradient.abs()).amax(1))


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
    agent: Agent,
    images: Tensor,
    actions: Tensor,
    guided: bool = False,
    vectors: Tensor | None = None,
) -> dict[str, Tensor]:
    """What moves Q, by its name; of an agent that is stored without Q: what moves its action.

    Drawn over the newest frames (B, 3, H, W), smooth, because strides leave a chequerboard.
    """
    if not has_critic(agent):
        maps = {"moves the action": action_gradients(agent, images, vectors)}
    else:
        maps = {"moves Q": input_gradients(agent, images, actions, False, vectors)}
        if guided:
            maps["raises Q, guided"] = input_gradients(agent, images, actions, True, vectors)
    images = side_by_side(images)
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
    scale = max(1, 160 // cells[0][0].shape[-2])  # small pictures are enlarged
    return sheets.save(sheets.sheet_of(rows, list(shown), cells, scale), out)


def look(
    agent: Agent, recording: Recording, samples: int, guided: bool = False
) -> dict[str, Tensor]:
    """Rows of the sheet for one episode: what the agent saw, and the maps over it."""
    moments = recording.spread(samples)
    views = views_at(recording, moments, agent)
    images, actions = views["clean", 0].float(), stacked(recording.actions, moments, agent)
    rows = {"seen": side_by_side(images)}
    rows |= influences(agent, images, actions, guided, views.vectors)
    if agent.masker is not None:
        masks = side_by_side(agent.masker.masks(images), FRAMES)
        rows["mask"] = masks[:, -1:].detach().repeat(1, 3, 1, 1)
    attended = attention(agent, images)
    if attended is not None:
        rows["attention"] = overlay(images, attended)
    return {name: pictures.cpu() for name, pictures in rows.items()}
