"""Encoders and methods of a user's own, named as module:name."""

from typing import Any

import own_networks
import pytest
import torch
from rederivation import make_batch
from torch import nn

from svea.agents import make_agent
from svea.agents.agent import Agent
from svea.cli.train import train_flags
from svea.config import configure, from_dict, to_dict
from svea.config.names import find_method
from svea.config.presets import run_name
from svea.core.errors import UserError
from svea.methods import Method
from svea.networks import OwnEncoder
from svea.recipes import RECIPES, Recipe, streams
from svea.speed.accelerate import compute_in_c

SMALL = {"preset": "quick", "image_size": 16, "shift": 1, "batch_size": 4}


def small_agent(**options: Any) -> Agent:
    return make_agent(configure("toy:make", **SMALL, **options), 2)


def test_an_encoder_is_called_with_what_it_asks_for_and_tried_for_its_size() -> None:
    trunk = OwnEncoder("own_networks:Small", 16)
    assert isinstance(trunk.network, own_networks.Small) and trunk.network.image_size == 16
    assert trunk.input_shape == (9, 16, 16) and trunk.features == 4 * 2 * 2
    images = torch.rand(3, 9, 16, 16)
    assert torch.equal(trunk(images), trunk.network.layers(images))


def test_trying_an_encoder_leaves_its_statistics_and_its_training_mode() -> None:
    network = OwnEncoder("own_networks:with_statistics", 16).network
    assert network.training
    statistics = network[0]
    assert isinstance(statistics, nn.BatchNorm2d)
    assert int(statistics.num_batches_tracked or 0) == 0


@pytest.mark.parametrize("options", [{}, {"method": "pad"}, {"mask": "madi"}, {"method": "sgqn"}])
def test_every_kind_of_update_trains_it(options: dict[str, Any]) -> None:
    agent = small_agent(encoder="own_networks:Small", overlay_dir="procedural", **options)
    compute_in_c([agent.trunk])  # kernels that are made for other networks leave it alone
    before = {name: p.clone() for name, p in agent.trunk.named_parameters()}
    batch = make_batch(rows=4)
    agent.update(batch, agent.schedule(0), batch)
    after = dict(agent.trunk.named_parameters())
    assert all(not torch.equal(after[name], old) for name, old in before.items())
    assert agent.act(batch.observations.numpy()).shape == (4, 2)


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("Smal", "Smal"),
        ("Pictures", r"2, 9, 16, 16.*flatten\(1\)"),
        ("TooDeep", r"RuntimeError.*\(.*own_networks.py, line \d+, in forward\)"),
        ("Depth", "`channels`.*RuntimeError"),
        ("SaysDepth", r"\(4, 16, 16\).*\(9, 16, 16\).*`channels`"),
        ("Needs", "TypeError: .*'depth'"),
        ("a_number", "int"),
    ],
)
def test_what_is_not_an_encoder_is_named(name: str, named: str) -> None:
    with pytest.raises(UserError, match=f"'own_networks:{name}'.*{named}"):
        small_agent(encoder=f"own_networks:{name}")


def test_pads_task_shares_an_own_encoder_whole() -> None:
    own = {"method": "pad", "encoder": "own_networks:Small"}
    assert configure("toy:make", **own).network.head_layers == 0
    with pytest.raises(UserError, match=r"1.*allowed: 0"):
        configure("toy:make", **own, **{"network.head_layers": 1})


def test_a_method_brings_its_recipe_augmentation_and_encoder() -> None:
    config = configure("toy:make", method="own_networks:small_svea", **SMALL)
    assert (config.augment, config.encoder) == ("conv|cutout", "own_networks:Small")
    assert make_agent(config, 2).streams == streams(RECIPES["svea"], config.recipe)
    assert run_name(config).startswith("toy_make-own_networks_small_svea-quick-")
    assert from_dict(to_dict(config)) == config
    flags = ["toy:make", "--method", "own_networks:small_svea", "--preset", "quick"]
    assert train_flags(flags)[0].encoder == "own_networks:Small"


def test_a_recipe_of_ones_own_feeds_the_views_that_it_names() -> None:
    agent = small_agent(method="own_networks:strong_policy", encoder="own_networks:Small")
    assert agent.streams.policy == (("strong", 0),)
    assert agent.streams.target == (("weak", 0),)
    agent.update(make_batch(rows=4), agent.schedule(0))


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("own_networks:NOT_A_METHOD", "int"),
        ("own_networks:nothing", "'own_networks:nothing'"),
        ("own_networks:misspelt", "'svae'.*'svea'"),
        ("svae", "'svae'.*'svea'"),
    ],
)
def test_what_is_not_a_method_is_named(name: str, named: str) -> None:
    with pytest.raises(UserError, match=named):
        configure("toy:make", method=name)


@pytest.mark.parametrize(
    ("row", "named"),
    [
        (((("wek", 1.0),), "weak", ("weak",)), "'wek'.*'weak'"),
        (((("weak", 1.0),), "strnog", ("weak",)), "'strnog'"),
        (((("weak", "gamma"),), "weak", ("weak",)), "'gamma'"),
        (((("weak", -1.0),), "weak", ("weak",)), "-1.0"),
        (((), "weak", ("weak",)), r"\(\)"),
        (((("weak", 1.0),), "weak", ()), r"\(\)"),
    ],
)
def test_a_recipe_that_cannot_be_fed_is_refused(row, named, monkeypatch):
    monkeypatch.setattr(own_networks, "misspelt", Method(Recipe(*row)))
    with pytest.raises(UserError, match=named):
        find_method("own_networks:misspelt")
