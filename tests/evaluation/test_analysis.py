"""Analyses against agents whose answers are known in closed form, and on a real run."""

import json
from pathlib import Path

import pytest
import torch
from tiny_runs import tiny

from svea.core.errors import UserError
from svea.evaluation.analysis import (
    Sample,
    choose_augmentations,
    open_replay,
    q_gap,
    q_variance,
)
from svea.results.read import read_run
from svea.runs.load import export, load_agent
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
