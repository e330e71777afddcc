"""SimGRL: SVEA with a drifting overlay and the frame-wise encoder, written out."""

from __future__ import annotations

from functools import partial

import pytest
import rederivation
import torch
from rederivation import SIZE, B, PlainSAC, make_agent
from torch import Tensor
from torch.nn import functional as F

from svea.augment import overlay_drift
from svea.config import configure
from svea.networks import FrameCNN
from svea.recipes import RecipeOptions

DRIFT = 1
LARGE = torch.rand(B, 3, SIZE + 6 * DRIFT, SIZE + 6 * DRIFT, generator=torch.Generator())
SPEED = torch.tensor([[1, -1], [0, 1], [-1, -1]] * B)[:B]


def drifting(weak: Tensor) -> Tensor:
    """Half observation, half a window whose corner moves with the frame."""
    out = weak / 2
    for sample in range(B):
        for frame in range(3):
            top, left = (3 * DRIFT + frame * int(step) for step in SPEED[sample])
            window = LARGE[sample, :, top : top + SIZE, left : left + SIZE]
            out[sample, 3 * frame : 3 * frame + 3] += window / 2
    return out


def frame_by_frame(w: dict[str, Tensor], images: Tensor, name: str = "trunk") -> Tensor:
    """One layer for each frame by itself, one for all of them."""
    first, last = f"{name}.single.layers.0", f"{name}.joint.layers.0"
    maps = [
        F.conv2d(frame, w[f"{first}.weight"], w[f"{first}.bias"], stride=2).clamp(min=0)
        for frame in images.split(3, dim=1)
    ]
    return F.conv2d(torch.cat(maps, 1), w[f"{last}.weight"], w[f"{last}.bias"]).flatten(1)


def test_updates_equal_a_plain_rederivation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses, gradients and weights after three updates, with alpha = beta = 1/2."""
    monkeypatch.setattr(rederivation, "strong_of", drifting)
    monkeypatch.setattr(rederivation, "trunk", frame_by_frame)
    draw = {"picture": LARGE, "speed": SPEED, "margin": 3 * DRIFT, "weight": 0.5}
    encoder = partial(FrameCNN, image_size=SIZE, layers=2, filters=8, frame_layers=1)
    strong = lambda images, generator: overlay_drift.apply(images, draw)  # noqa: E731
    agent = make_agent("svea", encoder=encoder, strong=strong)
    reference = PlainSAC("svea", RecipeOptions(alpha=0.5, beta=0.5))
    for decision in (2, 3, 4):
        reference.check_update(agent, decision, even=decision % 2 == 0)


def test_it_is_svea_with_both_and_each_can_be_changed() -> None:
    simgrl = configure("walker_walk", method="simgrl")
    assert (simgrl.augment, simgrl.encoder) == ("overlay_drift", "frames")
    assert (simgrl.recipe.alpha, simgrl.recipe.beta, simgrl.shift) == (0.5, 0.5, 4)
    other = configure("walker_walk", method="simgrl", encoder="cnn", augment="conv|overlay_drift")
    assert (other.augment, other.encoder) == ("conv|overlay_drift", "cnn")
    assert configure("walker_walk", method="simgrl", preset="quick").network.frame_layers == 2
