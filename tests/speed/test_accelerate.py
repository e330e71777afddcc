"""Fast versions are put on an agent from outside, and only where --speed asks for them."""

import copy
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
from replaced import made_of, parts
from tiny_runs import tiny

from svea import speed
from svea.agents import make_agent
from svea.augment import AUGMENTATIONS, augmentation, shift, transform
from svea.bench import noise_replay
from svea.core.errors import UserError
from svea.networks import Masker
from svea.speed.accelerate import compiled, put_channels_last

CPU = torch.device("cpu")


def test_eager_replaces_nothing(tmp_path: Path) -> None:
    agent = make_agent(tiny(tmp_path, augment="conv+shift"), 1)
    before = made_of(agent)
    speed.accelerate(agent, "eager")
    assert made_of(agent) == before
    registered = [AUGMENTATIONS[name].function for name in ("shift", "conv", "shift")]
    assert before[:3] == registered


def test_a_function_of_ones_own_stays_in_a_composition() -> None:
    def mine(x: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
        return x

    assert transform(mine, lambda each: shift) is mine
    changed = transform(augmentation("conv+blur|cutout"), lambda each: each.bind(known=1))
    assert [part.parameters for part in parts(changed)] == [{"known": 1}] * 3


def test_channels_last_changes_where_weights_lie_alone() -> None:
    plain = Masker(filters=4)
    laid_out = copy.deepcopy(plain)
    put_channels_last(laid_out)
    assert all(
        layer.weight.is_contiguous(memory_format=torch.channels_last)
        for layer in laid_out.layers
        if isinstance(layer, torch.nn.Conv2d)
    )
    images = torch.rand(2, 9, 12, 12)
    torch.testing.assert_close(laid_out(images), plain(images))


@pytest.mark.parametrize("changes", [{}, {"mask": "madi"}, {"method": "sgqn"}])
def test_updates_compiled_by_torch_are_the_eager_ones(changes, tmp_path, monkeypatch):
    """As on a device without kernels of ours; traced here, but not turned into machine code."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    compiled.cache_clear()
    config = tiny(tmp_path, augment="conv|overlay_drift:1", overlay_dir="procedural", **changes)
    plain, fast = (make_agent(config, 1) for _ in range(2))
    monkeypatch.setattr(fast, "device", torch.device("mps"))
    speed.accelerate(fast, "compiled")
    monkeypatch.setattr(fast, "device", CPU)
    replay = noise_replay(config, CPU, decisions=50)
    batch = replay.sample(8)
    batch.actions = batch.actions[:, :1]
    wanted, found = (agent.update(batch, agent.schedule(0)) for agent in (plain, fast))
    for name, loss in wanted.items():
        torch.testing.assert_close(found[name], loss, rtol=1e-4, atol=1e-5, msg=name)
    compiled.cache_clear()


def test_without_the_kernels_updates_are_plain_torch(tmp_path, monkeypatch):
    """As where the folder is missing: it is said once, or refused where kernels were asked for."""
    monkeypatch.setitem(sys.modules, "svea.kernels", None)
    monkeypatch.delattr("svea.kernels", raising=False)
    with pytest.warns(UserWarning, match=r"svea\.kernels"):
        assert speed.choose_speed("auto", CPU) == "eager"
    with pytest.raises(UserError, match=r"svea\.kernels"):
        speed.choose_speed("compiled", CPU)
    agent = make_agent(tiny(tmp_path), 1)
    before = made_of(agent)
    speed.accelerate(agent, "compiled")
    assert made_of(agent) == before
