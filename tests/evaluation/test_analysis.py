"""Analyses against agents whose answers are known in closed form, and on a real run."""

import json
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
    Sample,
    action_gradients,
    attention,
    choose_augmentations,
    input_gradients,
    look,
    open_replay,
    overlay,
    q_gap,
    q_variance,
    saliency,
    scaled,
)
from svea.evaluation.film import record
from svea.results.read import read_run
from svea.runs.load import export, load_agent, load_config
from svea.training import train


def test_all_augmentations_of_the_paper_are_asked_for() -> None:
    paper = {"conv", "overlay", "cutout", "blur", "affine_jitter", "rotation"}
    assert set(choose_augmentations(["all"])) == paper | {"shift"}
    assert choose_augmentations(["conv|blur", "conv|blur"]) == ["conv|blur"]
    for wrong, words in ((["crop"], "changes the size"), ([], "no augmentation"),
                         (["cnv"], "unknown augmentation 'cnv'")):  # fmt: skip
        with pytest.raises(UserError, match=words):
            choose_augmentations(wrong)


# On a real run -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tiny(tmp_path_factory.mktemp("analysis") / "run", image_size=32))


def test_the_replay_of_a_run_holds_what_happened(run: Path) -> None:
    agent = load_agent(run)
    replay = open_replay(run, agent, seed=3)
    assert len(replay) == 40
    transitions = replay.sample(32)
    assert torch.equal(transitions.actions, open_replay(run, agent, seed=3).sample(32).actions)
    bright = transitions.next_observations[:, -1, 16] == 255  # a row of the newest frame
    for columns, reward in zip(bright, transitions.rewards.tolist(), strict=True):
        centres = {round((1 + sign * (1 - reward)) / 2 * 31) for sign in (-1, 1)}
        seen = columns.nonzero().flatten().tolist()
        assert any(centre in seen for centre in centres), "the reward of a step is 1 - |x|"


def test_analyses_leave_the_agent_as_it_was_and_repeat(run: Path) -> None:
    sample = Sample.of(run, 16, 3, 5, "cpu")
    before = {name: tensor.clone() for name, tensor in sample.agent.state_dict().items()}
    first, gaps = q_variance(sample), q_gap(sample, ["shift", "conv", "cutout"])
    after = sample.agent.state_dict()
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())
    again = Sample.of(run, 16, 3, 5, "cpu")
    assert q_variance(again) == first
    assert q_gap(again, ["conv"]) == [gaps[1]], "no draw depends on what else is asked for"


def test_rows_are_kept_for_the_report(run: Path) -> None:
    sample = Sample.of(run, 8, 2, 0, "cpu")
    rows = q_variance(sample)
    assert [(row["view"], row["sees"]) for row in rows] == [("target", "weak"), ("strong", "conv")]
    gaps = q_gap(sample, ["all"])
    assert all(row["gap"] > 0 for row in gaps if row["augment"] != "rotation")
    kept = json.loads((run / "analysis" / "q-variance.json").read_text())
    assert kept == {"decision": 40, "transitions": 8, "draws": 2, "seed": 0, "rows": rows}
    assert read_run(run).analyses == {"q-variance": rows, "q-gap": gaps}


def test_an_augmentation_that_does_not_fit_is_named_and_the_rest_measured(tmp_path: Path) -> None:
    small = train(tiny(tmp_path / "small", method="drq", augment="none", decisions=15))
    sample = Sample.of(small, 4, 2, 0, "cpu")
    assert [row["view"] for row in q_variance(sample)] == ["target"], "it has no strong view"
    cutout, blur = q_gap(sample, ["cutout", "blur"])
    assert cutout["gap"] is None and "do not fit 16x16" in cutout["why"]
    assert blur["gap"] > 0


def test_what_has_no_replay_is_refused(run: Path, tmp_path: Path) -> None:
    folder = export(run, tmp_path / "export")
    with pytest.raises(UserError, match="has no replay buffer"):
        open_replay(folder, load_agent(folder))
    for options, words in (((0, 2), "transitions is 0"), ((8, 1), "draws is 1; allowed: 2")):
        with pytest.raises(UserError, match=words):
            Sample.of(run, *options, 0, "cpu")


# Where an agent looks -----------------------------------------------------------------------------


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
