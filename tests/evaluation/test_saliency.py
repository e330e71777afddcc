"""Where an agent looks, for agents of which it is known."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tiny_runs import tiny
from torch import Tensor

from svea.agents.diagnostics import guided_gradient
from svea.core.errors import UserError
from svea.evaluation.analysis import (
    action_gradients,
    attention,
    input_gradients,
    look,
    overlay,
    saliency,
    scaled,
)
from svea.evaluation.film import record
from svea.runs.load import load_agent, load_config
from svea.training import train


def test_gradients_are_those_of_q() -> None:
    weights = torch.zeros(9, 8, 8)
    weights[4, 2:4, 5:7] = -3.0  # only the size of an influence counts, in any frame or colour
    weights[0, 0, 0] = 1.5

    def q(images: Tensor, actions: Tensor) -> Tensor:
        return (images * weights).sum((1, 2, 3)) * actions[:, 0]

    agent: Any = SimpleNamespace(q=q)
    maps = input_gradients(agent, torch.rand(2, 9, 8, 8), torch.tensor([[1.0], [0.5]]))
    expected = torch.zeros(8, 8)
    expected[2:4, 5:7], expected[0, 0] = 1.0, 0.5
    torch.testing.assert_close(maps[0], expected)
    torch.testing.assert_close(maps[1], expected)  # each picture has its own scale


def test_gradients_of_the_action_are_those_of_its_length() -> None:
    weights = torch.zeros(2, 9, 8, 8)
    weights[0, 4, 2, 5], weights[1, 4, 6, 6], weights[1, 0, 0, 0] = -3.0, 4.0, 2.0

    def choose(features: Tensor, explore: bool, generator: Any) -> Tensor:
        return torch.einsum("bchw,achw->ba", features, weights)

    agent: Any = SimpleNamespace(trunk=lambda x: x, masked=lambda x: x, choose=choose)
    images = torch.zeros(1, 9, 8, 8)
    images[0, 4, 2, 5] = images[0, 4, 6, 6] = 1.0  # the action is (-3, 4), of length 5
    expected = torch.zeros(1, 8, 8)  # of |a|, by a_i w_i / |a|
    expected[0, [2, 6, 0], [5, 6, 0]] = torch.tensor([9.0, 16.0, 8.0]) / 5
    torch.testing.assert_close(action_gradients(agent, images), scaled(expected))


def test_attention_passes_on_through_the_layers() -> None:
    def maps(images: Tensor) -> Tensor:
        layers = torch.eye(5).repeat(1, 2, 1, 1, 1)
        layers[:, 0, :, 2] = torch.tensor([0, 0, 0, 0, 1.0])  # patch 1 first takes in patch 3,
        layers[:, 1, :, 0] = torch.tensor([0, 0, 1.0, 0, 0])  # then the class token looks at it
        return layers

    agent: Any = SimpleNamespace(trunk=SimpleNamespace(attention=maps), masked=lambda x: x)
    found = attention(agent, torch.rand(1, 9, 16, 16))
    assert found is not None
    corners = found[0, [0, 0, -1, -1], [0, -1, 0, -1]]
    assert corners[0] == corners[2] == 0 and corners[1] == corners[3] > 0.9


def test_heat_lies_over_the_newest_frame() -> None:
    images = torch.zeros(1, 9, 4, 4)
    images[:, :6] = 1.0  # older frames do not show
    maps = torch.zeros(1, 4, 4)
    maps[0, 1, 2] = 1.0
    drawn = overlay(images, maps)
    assert drawn.shape == (1, 3, 4, 4)
    assert drawn[0, :2, 1, 2].min() > 0.6 and drawn.sum() == drawn[0, :, 1, 2].sum()


def test_a_sheet_shows_the_modes_that_fit(tmp_path: Path) -> None:
    run = train(tiny(tmp_path / "run", decisions=15))
    problems: list[str] = []
    modes, out = ["train", "color_hard"], tmp_path / "sheet.png"
    saliency(run, modes, out, samples=2, on_problem=lambda mode, error: problems.append(mode))
    assert problems == ["color_hard"]
    assert attention(load_agent(run), torch.rand(1, 9, 16, 16)) is None, "a CNN has none"
    picture = np.asarray(Image.open(out))
    assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 20
    with pytest.raises(UserError, match="toy:make"):
        saliency(run, ["color_hard"], out, on_problem=print)
    with pytest.raises(UserError, match="samples is 0"):
        saliency(run, ["train"], out, samples=0, on_problem=print)


def test_guided_gradients_and_masks_have_rows_of_their_own(tmp_path: Path) -> None:
    network = {"layers": 2, "filters": 8, "projection": 16, "hidden": 64}
    run = train(tiny(tmp_path / "run", decisions=12, mask="madi", network=network))
    agent, config = load_agent(run), load_config(run)
    played = record(agent, config, "train", size=None)
    assert list(look(agent, played, 2)) == ["seen", "moves Q", "mask"]
    rows = look(agent, played, 2, guided=True)
    assert list(rows) == ["seen", "moves Q", "raises Q, guided", "mask"]
    assert not torch.equal(rows["moves Q"], rows["raises Q, guided"])
    images = rows["seen"]
    actions = torch.as_tensor(np.stack([played.actions[0], played.actions[-1]]))
    expected = guided_gradient(agent, images, actions).abs().amax(1)
    found = input_gradients(agent, images, actions, guided=True)
    top = expected.flatten(1).quantile(0.99, dim=1)[:, None, None]
    torch.testing.assert_close(found, (expected / top).clamp(max=1))
