"""Analyses against agents whose answers are known in closed form, and on a real run."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fake_runs import write_run
from tiny_runs import tiny
from torch import Tensor

from svea.errors import UserError
from svea.evidence.analysis import (
    Sample,
    choose_augmentations,
    common_level,
    open_replay,
    q_gap,
    q_gap_of,
    q_target_variance,
    q_targets,
    q_variance,
    wall_times,
)
from svea.evidence.read import read_run
from svea.evidence.results import group_runs
from svea.recipes import RECIPES, RecipeOptions, Streams, streams
from svea.replay import Batch
from svea.runs.load import export, load_agent
from svea.training import train
from svea.views import Views

torch.set_num_threads(1)

WIDTH, DISCOUNT, SIZE = 6.0, 0.9, 4


@dataclass
class Guesser:
    """Values an image by its mean; its weak view adds one uniform number to all pixels.

    So the Q-target's variance over views is (discount * width)^2 / 12, that of a uniform law.
    """

    streams: Streams
    noise: float = 0.0
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    def views(self, observations: Tensor, generator: torch.Generator) -> Views:
        def weak(images: Tensor) -> Tensor:
            draw = torch.rand(len(images), 1, 1, 1, generator=generator)
            return images + 255 * WIDTH * draw

        def strong(images: Tensor) -> Tensor:
            return 2 * images

        return Views(observations.float(), lambda images: images.clone(), weak, strong)

    def value(self, images: Tensor, generator: torch.Generator) -> Tensor:
        drawn = torch.randn(len(images), generator=generator)
        return images.mean((1, 2, 3)) + self.noise * drawn

    def q(self, images: Tensor, actions: Tensor) -> Tensor:
        return 3 * images.mean((1, 2, 3)) + actions[:, 0]


def guesser(recipe: str, noise: float = 0.0, **options: Any) -> Any:
    return Guesser(streams(RECIPES[recipe], RecipeOptions(**options)), noise)


def batch(size: int = 64) -> Batch:
    generator = torch.Generator().manual_seed(0)
    pictures = torch.randint(256, (2, size, 9, SIZE, SIZE), generator=generator, dtype=torch.uint8)
    numbers = torch.rand(2, size, generator=generator)
    return Batch(
        observations=pictures[0],
        actions=numbers[:1].T,
        rewards=numbers[1],
        discounts=torch.full((size,), DISCOUNT),
        next_observations=pictures[1],
    )


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


UNIFORM = (DISCOUNT * WIDTH) ** 2 / 12


@pytest.mark.parametrize(
    ("recipe", "options", "expected"),
    [
        ("svea", {}, UNIFORM),
        ("drq", {"K": 4}, UNIFORM / 4),  # the target is a mean over K independent views
        ("svea-augmented-target", {}, 4 * UNIFORM),  # the strong view is twice the weak one
        ("mix-all", {}, 2.5 * UNIFORM),  # each stream its own: the mean of both variances
        ("clean-target", {}, 0.0),
    ],
)
def test_the_variance_is_that_of_the_view_alone(
    recipe: str, options: dict[str, int], expected: float
) -> None:
    # The policy's noise is held fixed, so that a hundredfold of it changes nothing.
    for noise in (0.0, 100.0):
        found = q_target_variance(guesser(recipe, noise, **options), batch(), 400, seeded())
        assert found == pytest.approx(expected, rel=0.05, abs=1e-9)


def test_targets_are_reward_plus_discounted_value() -> None:
    transitions = batch()
    targets = q_targets(guesser("clean-target"), transitions, 2, seeded())
    means = transitions.next_observations.double().mean((1, 2, 3)) / 255
    expected = transitions.rewards.double() + DISCOUNT * means
    assert targets.shape == (2, 1, 64)
    torch.testing.assert_close(targets[1, 0], expected, atol=1e-5, rtol=1e-5)
    assert q_targets(guesser("mix-all"), transitions, 2, seeded()).shape == (2, 2, 64)


def test_a_gap_is_what_the_augmentation_does_to_q() -> None:
    def brighter(images: Tensor, generator: torch.Generator) -> Tensor:
        return images + 0.25

    def either(images: Tensor, generator: torch.Generator) -> Tensor:
        sign = torch.randint(2, (len(images), 1, 1, 1), generator=generator) * 2 - 1
        return images + 0.25 * sign

    agent = guesser("svea")
    assert q_gap_of(agent, batch(), brighter, 2, seeded()) == pytest.approx(0.75, abs=1e-5)
    # Differences do not cancel: it is a mean of absolute values.
    assert q_gap_of(agent, batch(), either, 2, seeded()) == pytest.approx(0.75, abs=1e-5)
    assert q_gap_of(agent, batch(), lambda x, generator: x, 2, seeded()) == 0


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


# Wall time ---------------------------------------------------------------------------------------


def test_hours_to_a_return_are_read_off_the_mean_curve(tmp_path: Path) -> None:
    # fake runs take 0.1 s a decision and climb in a straight line, so hours follow from returns.
    runs = [
        read_run(write_run(tmp_path / "a", seed=0, final={"train": 300})),
        read_run(write_run(tmp_path / "b", seed=1, final={"train": 500})),
        read_run(write_run(tmp_path / "c", method="drq", final={"train": 200}, decisions=12_000)),
    ]
    drq, svea = wall_times(group_runs(runs), "train")
    whole = 600 / 3600
    assert svea.milliseconds == pytest.approx(100)
    np.testing.assert_allclose(svea.curve.returns[-1], 400)
    np.testing.assert_allclose(svea.curve.decisions[-1], whole)
    assert common_level([drq, svea]) == pytest.approx(180)
    assert svea.hours_to(180) == pytest.approx(whole * 180 / 400)
    assert drq.hours_to(180) == pytest.approx(2 * whole * 0.9)
    assert svea.hours_to(0) == 0 and math.isnan(svea.hours_to(401))
    assert wall_times(group_runs(runs), "video_hard") == []


def test_the_replay_of_a_crop_method_opens_in_its_rendered_size(tmp_path: Path) -> None:
    from tiny_runs import tiny

    from svea.training import train

    run = train(tiny(tmp_path / "rad", method="rad", augment="none", crop=4, decisions=20))
    replay = open_replay(run, load_agent(run))
    assert replay.sample(2).observations.shape == (2, 9, 20, 20)
