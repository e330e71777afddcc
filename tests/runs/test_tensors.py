import json
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_runs import tiny

from svea.cli import main
from svea.core.errors import UserError
from svea.evaluation.analysis import saliency
from svea.evaluation.film import record
from svea.evaluation.requests import evaluate, fingerprint
from svea.runs import tensors
from svea.runs.load import export, has_critic, load_agent, load_config
from svea.runs.tensors import SCALE, restore, shrink
from svea.training import train

IMAGES = np.random.default_rng(0).integers(0, 256, (50, 9, 16, 16), dtype=np.uint8)


@pytest.fixture
def small(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tensors, "LARGE", 64)  # so that the tiny agent has 8-bit layers
    return export(run, tmp_path / "small", small=True)


def test_every_weight_of_a_large_matrix_is_within_a_step_of_its_block() -> None:
    sizes = torch.tensor([1e-6, 1.0, 1e4, 0.0]).repeat_interleave(256)[:, None]
    matrix = torch.randn(1024, 256, generator=torch.Generator().manual_seed(0)) * sizes
    stored = shrink({"w": matrix})
    assert stored["w"].dtype == torch.int8 and stored["w" + SCALE].shape == (4096,)
    back = restore(stored)["w"]
    step = matrix.reshape(-1, 64).abs().amax(1, keepdim=True) / 127
    assert back.shape == matrix.shape
    assert ((back - matrix).reshape(-1, 64).abs() <= 0.76 * step).all()


def test_other_weights_are_halved_and_counts_kept() -> None:
    state = {"conv": torch.randn(4, 3, 3, 3), "bias": torch.randn(7), "count": torch.tensor([[3]])}
    stored = shrink(state)
    assert stored["conv"].dtype == stored["bias"].dtype == torch.float16
    back = restore(stored)
    assert torch.equal(back["count"], state["count"])
    assert all(torch.allclose(back[k], state[k], rtol=1e-3, atol=1e-6) for k in ("conv", "bias"))
    assert {tensor.dtype for tensor in back.values()} == {torch.float32, torch.int64}


def test_a_small_export_acts_nearly_like_its_run(run: Path, small: Path) -> None:
    assert sorted(path.name for path in small.iterdir()) == ["actor.safetensors", "config.json"]
    original, copy = load_agent(run), load_agent(small)
    difference = np.abs(original.act(IMAGES) - copy.act(IMAGES))
    assert 0 < difference.max() < 0.02
    assert copy.decision == 16 and fingerprint(copy) != fingerprint(original)
    records = evaluate(small, episodes=2, environments=1)
    assert [record["decision"] for record in records] == [16, 16]


def test_an_agent_without_a_critic_says_so_where_q_values_are_needed(small, tmp_path):
    agent = load_agent(small)
    assert not has_critic(agent)
    with pytest.raises(UserError, match="Q-values"):
        agent.q_value(torch.zeros(1, 9, 16, 16, dtype=torch.uint8), torch.zeros(1, 1))
    with pytest.raises(UserError, match="Q-values"):
        saliency(small, ["train"], tmp_path / "s.png", guided=True, on_problem=lambda *_: None)
    recording = record(agent, load_config(small), "train", size=None)
    assert len(recording.totals) == 10 and np.isnan(recording.q).all()


def test_a_small_export_may_keep_its_critic(run, tmp_path, monkeypatch):
    monkeypatch.setattr(tensors, "LARGE", 64)
    assert main(["export", str(run), str(tmp_path / "small"), "--small", "--critic"]) == 0
    original, copy = load_agent(run), load_agent(tmp_path / "small")
    images = torch.from_numpy(IMAGES)
    actions = torch.linspace(-1, 1, len(images))[:, None]
    wanted, found = original.q_value(images, actions), copy.q_value(images, actions)
    assert 0 < (wanted - found).abs().max() < 0.02 * wanted.abs().max()
    assert np.isfinite(record(copy, load_config(run), "train", size=None).q).all()
    gap = ["analyze", "q-gap", str(tmp_path / "small"), "--augment", "conv", "--transitions", "4"]
    assert main(gap) == 0
    found = json.loads((tmp_path / "small/analysis/q-gap.json").read_text())
    assert found["transitions"] == 4 and found["rows"][0]["gap"] > 0


def test_a_small_export_can_only_be_exported_small(small: Path, tmp_path: Path) -> None:
    for options in ({}, {"small": True, "critic": True}):
        with pytest.raises(UserError, match="no critic"):
            export(small, tmp_path / "other", **options)
    again = export(small, tmp_path / "again", small=True)
    assert np.allclose(load_agent(small).act(IMAGES), load_agent(again).act(IMAGES), atol=1e-5)


@pytest.mark.parametrize(
    "changes",
    [
        {"base": "dqn", "action_bins": 3},
        {"base": "ddpg"},
        {"method": "pad", "network": {"layers": 3, "filters": 4, "head_layers": 1, "hidden": 16}},
        {"method": "soda"},
    ],
    ids=str,
)
def test_every_kind_of_agent_can_be_stored_whole_and_small(changes, tmp_path):
    run = train(tiny(tmp_path / "run", decisions=14, **changes))
    whole = load_agent(export(run, tmp_path / "whole"))
    assert np.array_equal(load_agent(run).act(IMAGES), whole.act(IMAGES))
    agent = load_agent(export(run, tmp_path / "small", small=True))
    assert has_critic(agent) == (changes.get("base") == "dqn")
    assert len(evaluate(tmp_path / "small", episodes=1, environments=1)) == 1
