"""Mistakes in a configuration, and what a user is told about them."""

from typing import Any

import pytest

from svea.config import configure, seconds
from svea.core.errors import UserError


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"task": "waler_walk"}, ["unknown task 'waler_walk'", "'walker_walk'"]),
        ({"method": "sveaa"}, ["unknown method 'sveaa'", "'svea'"]),
        ({"eval_mode": "color_hrad"}, ["unknown mode 'color_hrad'", "'color_hard'"]),
        ({"augment": "covn"}, ["unknown augmentation 'covn'", "'conv'"]),
        ({"augment": "conv+cutuot"}, ["'cutuot'", "'cutout'"]),
        ({"preset": "quikc"}, ["unknown preset 'quikc'", "'quick'"]),
        ({"devise": "cpu"}, ["unknown option 'devise'", "'device'"]),
        ({"recipe": {"alhpa": 1}}, ["unknown option 'recipe.alhpa'", "'recipe.alpha'"]),
        ({"device": "gpu"}, ["unknown device 'gpu'", "cuda"]),
        ({"network.layers": 101}, ["network.layers is 101", "1 to 100"]),
        ({"network.mlp_ratio": 0}, ["network.mlp_ratio is 0", "above 0"]),
        ({"step_timeout": float("inf")}, ["step_timeout is inf", "0 to"]),
        ({"seed": -1}, ["seed is -1", "0 to"]),
        ({"seed": "3"}, ["seed is '3', a str", "allowed: a whole number"]),
        ({"step_timeout": "1"}, ["step_timeout is '1', a str", "a number"]),
        ({"seed": True}, ["seed is True, a bool"]),
        ({"decisions": 0}, ["decisions is 0", "1 to"]),
        ({"decisions": 1e5}, ["decisions is 100000.0, a float", "whole"]),
        ({"image_size": 16}, ["16 pixels are too small for 11 layers"]),
        ({"sac": {"discount": float("nan")}}, ["sac.discount is nan", "0 to 1"]),
        ({"learning_rate": 1}, ["Did you mean 'sac.learning_rate' or 'ddpg.learning_rate'"]),
        ({"recipe": {"alpha": 0, "beta": 0}}, ["recipe.alpha is 0", "recipe.beta is 0"]),
        ({"recipe": {"K": 2}, "method": "mix-all"}, ["recipe.K is 2", "allowed: 1"]),
        ({"recipe": {"beta": 1.0}, "method": "drq"}, ["method drq has one", "--method svea"]),
        ({"recipe": 3}, ["recipe is 3", "named values"]),
        ({"envs": 4, "warmup": 3}, ["warmup is 3", "4 or more"]),
        ({"time_limit": "soon"}, ["time_limit is 'soon'", "90s, 9m, 1h30m"]),
        ({"method": "svea", "augment": "none"}, ["augment is none", "method svea", "conv"]),
        ({"method": "clean-target", "augment": "conv"}, ["method clean-target", "allowed: none"]),
        ({"recipe": {"beta": 1.0}, "augment": "none"}, ["augment is none", "--method drq"]),
        ({"base": "dqn"}, ["base is dqn", "walker_walk", "--action-bins 3"]),
        ({"base": "sac", "action_bins": 3}, ["action_bins is 3", "--base dqn"]),
        ({"base": "ddpg", "action_bins": 3}, ["base ddpg has continuous", "--action-bins 0"]),
        ({"base": "dqn", "action_bins": 1}, ["action_bins is 1", "2 to 4096"]),
        ({"method": "pad", "sac": {"n_step": 2}}, ["sac.n_step is 2", "allowed: 1"]),
        ({"method": "sac", "auxiliary": "curl"}, ["auxiliary is curl", "method sac"]),
        ({"method": "drq", "auxiliary": "curl", "shift": 0}, ["auxiliary is curl", "shift of 0"]),
        ({"method": "soda", "augment": "none"}, ["method soda", "allowed: conv"]),
        ({"method": "drq", "auxiliary": "sgqn"}, ["task sgqn of method drq", "--method sgqn"]),
        ({"augment": "overlay_drift:x"}, ["'overlay_drift:x'"]),
        ({"augment": "conv||cutout"}, ["'conv||cutout'"]),
        ({"method": "soda", "auxiliary": "none"}, ["method soda", "allowed: none"]),
        ({"method": "curl", "augment": "conv"}, ["method curl", "allowed: none"]),
        ({"encoder": "vit", "network.head_layers": 3}, ["head_layers is 3", "vit"]),
        ({"encoder": "vit", "image_size": 84}, ["84 pixels", "patches of 8", "--image-size 80"]),
        ({"encoder": "vit", "network.heads": 5}, ["128 dimensions", "5 heads"]),
        ({"network.head_layers": 11}, ["head_layers is 11", "0 to 10"]),
        ({"network.head_layers": 3}, ["head_layers is 3", "auxiliary is none", "--auxiliary pad"]),
        (
            {"network.layers": 4, "network.head_layers": 3, "network.strided_layers": 2},
            ["strided_layers is 2", "0 to 1"],
        ),
        ({"encoder": "resnet"}, ["unknown encoder 'resnet'", "vit"]),
        ({"pad": {"task": "colour"}}, ["unknown pad.task 'colour'", "rotation"]),
        ({"preset": ["quick"]}, ["preset is ['quick']"]),
        ({"method": None}, ["method is None"]),
        ({"task": 5}, ["task is 5"]),
        ({"seed": 1, "seed.x": 2}, ["seed.x"]),
        ({"recipe": {"alpha": 3, "alpha.x": 2}}, ["recipe.alpha.x"]),
        (
            {"encoder": "frames", "network": {"frame_layers": 11}},
            ["network.frame_layers is 11", "up to 10"],
        ),
        (
            {"encoder": "frames", "method": "pad", "network": {"frame_layers": 9}},
            ["network.frame_layers is 9", "up to 7"],
        ),
        ({"augment": "overlay-drift:65"}, ["drift is 65", "0 to 64"]),
        ({"augment": "conv|overlay_drift:60"}, ["84x84", "444x444", "overlay_drift:"]),
        ({"augment": "overlay_drift:1", "image_size": 500}, ["506x506", "overlay"]),
        ({"augment": "conv+crop"}, ["augment is 'conv+crop'"]),
    ],
)
def test_mistakes_are_named_with_what_is_allowed(changes: Any, words: list[str]) -> None:
    with pytest.raises(UserError) as error:
        configure(**{"task": "walker_walk"} | changes)
    assert all(word in str(error.value) for word in words), error.value


def test_sensible_relatives_of_what_is_refused() -> None:
    """The cures that the messages name."""
    for changes in (
        {"base": "dqn", "action_bins": 3},
        {"method": "pad", "base": "ddpg"},
        {"method": "pad", "base": "ddpg", "pad": {"task": "rotation"}},
        {"method": "drq", "auxiliary": "curl"},
        {"encoder": "vit", "image_size": 80},
        {"method": "soda", "augment": "conv"},
        {"method": "svea", "auxiliary": "soda"},
        {"recipe": {"beta": 0.0}},
    ):
        configure("walker_walk", **changes)  # type: ignore[arg-type]
    configure("toy:make", base="dqn")  # its actions may be discrete: the environment will say


def test_wall_times() -> None:
    texts = ("90s", "90", "9m", "1h1m1s", "0s", "none")
    assert [seconds(text) for text in texts] == [90, 90, 540, 3661, 0, float("inf")]


@pytest.mark.parametrize("text", ["", " ", "h", "-1s", "1.5h", "1d", "30m1h", "9999999s", "inf"])
def test_no_wall_times(text: str) -> None:
    with pytest.raises(UserError, match="time_limit is"):
        seconds(text)
