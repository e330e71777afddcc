from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from svea.config import (
    ENCODERS,
    MAY_CHANGE,
    PRESETS,
    Config,
    configure,
    differences,
    from_dict,
    seconds,
    to_dict,
)
from svea.errors import UserError
from svea.methods import METHODS

FIELDS = {
    field.name: getattr(Config("walker_walk"), field.name) for field in dataclasses.fields(Config)
}
GROUPS = {
    name: value for name, value in to_dict(Config("walker_walk")).items() if isinstance(value, dict)
}


def message(**changes: Any) -> str:
    """What a user is told."""
    task = changes.pop("task", "walker_walk")
    with pytest.raises(UserError) as error:
        configure(task, **changes)
    return str(error.value)


# Precedence ---------------------------------------------------------------------------------------


def test_default_then_preset_then_task_then_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    assert configure("walker_walk").batch_size == 128
    preset = {"batch_size": 64, "action_repeat": 3, "network": {"filters": 5}}
    monkeypatch.setitem(PRESETS, "quick", preset)
    config = configure("cartpole_swingup", preset="quick")
    assert config.batch_size == 64, "preset over default"
    assert config.network.filters == 5 and config.network.layers == 11, "field by field"
    assert config.action_repeat == 8, "task over preset"
    config = configure(
        "cartpole_swingup", preset="quick", action_repeat=2, network={"layers": 4}, batch_size=7
    )
    assert (config.action_repeat, config.batch_size) == (2, 7), "flag over task"
    assert config.network.filters == 5 and config.network.layers == 4


@pytest.mark.parametrize(
    ("task", "repeat"), [("finger_spin", 2), ("cartpole_swingup", 8), ("walker_walk", 4)]
)
def test_the_papers_action_repeats(task: str, repeat: int) -> None:
    config = configure(task)
    assert config.action_repeat == repeat
    assert config.episode_length == 1000 // repeat
    assert config.environment["action_repeat"] == repeat


def test_a_users_environment_has_neither_repeat_nor_test_modes() -> None:
    config = configure("toy:make")
    assert config.action_repeat == 1 and config.eval_mode == "train"


def test_the_method_decides_the_augmentation() -> None:
    assert configure("walker_walk").augment == "conv"
    assert configure("walker_walk", method="drq").augment == "none"
    assert configure("walker_walk", method="drq", augment="conv").augment == "conv"


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_a_good_configuration_in_every_preset(method: str, preset: str) -> None:
    config = configure("walker_walk", method=method, preset=preset)
    assert from_dict(json.loads(json.dumps(to_dict(config)))) == config


def test_the_encoder_switches_what_the_paper_switches() -> None:
    cnn, vit = configure("cartpole_swingup"), configure("cartpole_swingup", encoder="vit")
    names = ("image_size", "shift", "batch_size", "decisions", "replay")
    assert [getattr(cnn, name) for name in names] == [84, 4, 128, 500_000, 500_000]
    assert [getattr(vit, name) for name in names] == [96, 6, 512, 300_000, 300_000]
    assert vit.environment["image_size"] == 96 and vit.action_repeat == 8
    assert vit.network.head_layers == 0
    for name in names:  # every value can still be said otherwise
        assert getattr(configure("walker_walk", encoder="vit", **{name: 160}), name) == 160


@pytest.mark.parametrize(
    ("task", "alpha", "beta"),
    [
        ("walker_walk", 1.0, 1.0),
        ("walker_stand", 1.0, 1.0),
        ("robot_push", 1.0, 0.5),
        ("robot_reach", 0.5, 0.5),
        ("cartpole_swingup", 0.5, 0.5),
        ("toy:make", 0.5, 0.5),
    ],
)
def test_the_vits_coefficients_per_task(task: str, alpha: float, beta: float) -> None:
    def coefficients(**changes: Any) -> tuple[float, float]:
        recipe = configure(task, **changes).recipe
        return recipe.alpha, recipe.beta

    assert coefficients(encoder="vit") == (alpha, beta)
    assert coefficients(encoder="vit", method="sada") == (alpha, beta)
    assert coefficients() == (0.5, 0.5), "the CNN's are the same everywhere"
    assert coefficients(encoder="vit", method="drq") == (0.5, 0.5), "it has one stream"
    assert coefficients(encoder="vit", **{"recipe.beta": 0.3}) == (alpha, 0.3), "flag over task"


@pytest.mark.parametrize("method", [name for name, method in METHODS.items() if method.crop])
def test_crop_methods_render_larger_pictures(method: str) -> None:
    config = configure("walker_walk", method=method)
    assert (config.image_size, config.environment["image_size"]) == (84, 100)
    config = configure("walker_walk", method=method, encoder="vit")
    assert (config.image_size, config.environment["image_size"]) == (96, 112)
    config = configure("walker_walk", method=method, preset="quick")
    assert (config.image_size, config.environment["image_size"]) == (40, 48)
    assert configure("walker_walk", method=method, crop=8).rendered_size == 92


def test_method_over_encoder_over_preset(monkeypatch: pytest.MonkeyPatch) -> None:
    config = configure("walker_walk", preset="quick", encoder="vit")
    assert (config.image_size, config.network.width, config.network.hidden) == (40, 64, 256)
    monkeypatch.setitem(ENCODERS["drqv2"], "paper", {"augment": "blur", "batch_size": 9})
    config = configure("walker_walk", encoder="drqv2")
    assert (config.augment, config.batch_size) == ("conv", 9), "method over encoder"
    assert configure("walker_walk", encoder="drqv2", augment="blur").augment == "blur"


def test_pad_splits_convolutions_and_shares_a_vit_whole() -> None:
    def heads(**changes: Any) -> int:
        return configure("walker_walk", method="pad", **changes).network.head_layers

    assert (heads(), heads(preset="quick"), heads(encoder="vit")) == (3, 1, 0)
    assert heads(encoder="vit", preset="quick") == 0
    assert heads(**{"network.head_layers": 2}) == 2
    assert configure("walker_walk", method="pad").network.layers == 11


@pytest.mark.parametrize("base", ["ddpg", "dqn"])
def test_exploration_noise_is_no_part_of_an_evaluation(base: str) -> None:
    settings: dict[str, Any] = {"preset": "quick", "base": base}
    settings |= {"action_bins": 3} if base == "dqn" else {}
    assert configure("walker_walk", preset="quick").eval_actions == "sampled"
    assert configure("walker_walk", **settings).eval_actions == "most_likely"
    assert configure("walker_walk", **settings, eval_actions="sampled").eval_actions == "sampled"


def test_the_numbers_in_use_are_those_of_the_base() -> None:
    config = configure("walker_walk", base="ddpg")
    assert config.options is config.ddpg and config.options.n_step == 3
    assert configure("walker_walk").options.n_step == 1


@pytest.mark.parametrize("base", ["sac", "ddpg", "dqn"])
@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("preset", PRESETS)
def test_every_method_goes_with_every_encoder_and_base(
    preset: str, encoder: str, base: str
) -> None:
    for method in METHODS:
        settings: dict[str, Any] = {"preset": preset, "encoder": encoder, "base": base}
        settings |= {"action_bins": 3} if base == "dqn" else {}
        settings |= {"ddpg.n_step": 1} if (method, base) == ("pad", "ddpg") else {}
        config = configure("walker_walk", method=method, **settings)
        assert from_dict(json.loads(json.dumps(to_dict(config)))) == config


def test_nested_values_by_dictionary_dots_or_dataclass() -> None:
    from svea.recipes import RecipeOptions

    for values in (
        {"recipe": {"alpha": 0.9}}, {"recipe.alpha": 0.9}, {"recipe": RecipeOptions(alpha=0.9)},
    ):  # fmt: skip
        config = configure("walker_walk", **values)
        assert (config.recipe.alpha, config.recipe.beta) == (0.9, 0.5)


def test_the_folder_has_a_safe_name() -> None:
    assert configure("walker_walk", seed=3).folder == Path("runs/walker_walk-svea-3")
    assert configure("toy:make", method="drq+aug").folder == Path("runs/toy_make-drq+aug-0")
    assert configure("toy:make", out="a/b").folder == Path("a/b")


# Mistakes -----------------------------------------------------------------------------------------


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
    ],
)
def test_wrong_names_are_answered_with_the_nearest(changes: Any, words: list[str]) -> None:
    text = message(**changes)
    assert all(word in text for word in words), text
    assert "Allowed: " in text


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"seed": -1}, ["seed is -1", "0 to"]),
        ({"seed": "3"}, ["seed is '3', a str", "allowed: a whole number"]),
        ({"seed": True}, ["seed is True, a bool"]),
        ({"decisions": 0}, ["decisions is 0", "1 to"]),
        ({"decisions": 10**12}, ["decisions is 1000000000000"]),
        ({"decisions": 1e5}, ["decisions is 100000.0, a float", "whole"]),
        ({"image_size": 15}, ["image_size is 15", "16 to"]),
        ({"image_size": 16}, ["16 pixels are too small for 11 layers"]),
        ({"sac": {"discount": 1.01}}, ["sac.discount is 1.01", "0 to 1"]),
        ({"sac": {"discount": float("nan")}}, ["sac.discount is nan", "0 to 1"]),
        ({"sac": {"learning_rate": 0}}, ["sac.learning_rate is 0", "above 0"]),
        ({"recipe": {"alpha": -0.1}}, ["recipe.alpha is -0.1", "0 to"]),
        ({"recipe": {"alpha": 0, "beta": 0}}, ["recipe.alpha and recipe.beta are both 0"]),
        ({"recipe": {"K": 0}}, ["recipe.K is 0"]),
        ({"recipe": {"K": 2}, "method": "mix-all"}, ["recipe.K is 2", "allowed is K=1"]),
        ({"recipe": {"beta": 1.0}, "method": "drq"}, ["method drq has one", "--method svea"]),
        ({"batch_size": 10**6}, ["batch_size is 1000000", "1 to 65536"]),
        ({"recipe": 3}, ["recipe is 3", "named values"]),
        ({"envs": 4, "warmup": 3}, ["warmup is 3", "4 or more"]),
        ({"time_limit": "soon"}, ["time_limit is 'soon'", "90s, 9m, 1h30m"]),
        ({"method": "svea", "augment": "none"}, ["method svea", "--augment conv"]),
        ({"method": "clean-target", "augment": "conv"}, ["method clean-target", "--augment none"]),
        ({"recipe": {"beta": 1.0}, "augment": "none"}, ["augment is none", "--method drq"]),
        ({"recipe": {"beta": -1}}, ["recipe.beta is -1", "0 to"]),
        ({"recipe": {"M": 0}}, ["recipe.M is 0", "1 to 64"]),
        ({"base": "dqn"}, ["discrete", "walker_walk has a vector", "--action-bins 3"]),
        ({"base": "sac", "action_bins": 3}, ["action_bins is 3", "--base dqn"]),
        ({"base": "ddpg", "action_bins": 3}, ["base ddpg has continuous", "--action-bins 0"]),
        ({"base": "dqn", "action_bins": 1}, ["action_bins is 1", "2 to 4096"]),
        ({"base": "ddpg", "method": "pad"}, ["consecutive", "--ddpg.n-step 1"]),
        ({"method": "pad", "sac": {"n_step": 2}}, ["looks 2 decisions ahead", "--sac.n-step 1"]),
        ({"method": "sac", "auxiliary": "curl"}, ["method sac", "--method curl"]),
        ({"method": "drq", "auxiliary": "curl", "shift": 0}, ["a shift of 0", "--method curl"]),
        ({"method": "soda", "augment": "none"}, ["method soda", "--augment conv"]),
        ({"method": "soda", "auxiliary": "none"}, ["nothing in method soda", "--augment none"]),
        ({"method": "curl", "augment": "conv"}, ["nothing in method curl", "--augment none"]),
        (
            {"encoder": "vit", "network.head_layers": 3},
            ["head_layers is 3", "0 with --encoder vit"],
        ),
        ({"encoder": "vit", "image_size": 84}, ["84 pixels", "patches of 8", "--image-size 80"]),
        ({"encoder": "vit", "network.heads": 5}, ["128 dimensions", "5 heads"]),
        ({"network.head_layers": 11}, ["head_layers is 11 of 11", "0 to 10"]),
        (
            {"network.layers": 4, "network.head_layers": 3, "network.strided_layers": 2},
            ["strided_layers is 2", "first 1 are shared", "0 to 1"],
        ),
        ({"encoder": "resnet"}, ["unknown encoder 'resnet'", "vit"]),
        ({"base": "ppo"}, ["unknown base 'ppo'", "ddpg"]),
        ({"auxiliary": "byol"}, ["unknown auxiliary 'byol'", "soda"]),
        ({"pad": {"task": "colour"}}, ["unknown pad.task 'colour'", "rotation"]),
        ({"pad": {"copies": 0}}, ["pad.copies is 0", "1 to"]),
        ({"soda": {"tau": 2.0}}, ["soda.tau is 2.0", "0 to 1"]),
        ({"ddpg": {"noise_clip": -0.1}}, ["ddpg.noise_clip is -0.1", "0 to"]),
        ({"dqn": {"epsilon_end": 1.5}}, ["dqn.epsilon_end is 1.5", "0 to 1"]),
        ({"ddpg": {"n_step": 0}}, ["ddpg.n_step is 0", "1 to 100"]),
        ({"preset": ["quick"]}, ["preset is ['quick']"]),
        ({"method": None}, ["method is None"]),
        ({"task": 5}, ["task is 5"]),
        ({"seed": 1, "seed.x": 2}, ["seed.x cannot be set", "seed is 1", "named values"]),
        ({"recipe": {"alpha": 3, "alpha.x": 2}}, ["recipe.alpha.x cannot", "recipe.alpha is 3"]),
        ({"augment": "conv+crop"}, ["augment is 'conv+crop'", "--crop 16", "--method rad"]),
        ({"augment": "conv | crop"}, ["augment is 'conv | crop'", "leave it out"]),
    ],
)
def test_wrong_values_are_named_with_what_is_allowed(changes: Any, words: list[str]) -> None:
    text = message(**changes)
    assert all(word in text for word in words), text


def test_sensible_relatives_of_what_is_refused() -> None:
    """The cures that the messages name."""
    for changes in (
        {"base": "dqn", "action_bins": 3},
        {"method": "pad", "base": "ddpg", "ddpg.n_step": 1},
        {"method": "pad", "base": "ddpg", "pad": {"task": "rotation"}},
        {"method": "drq", "auxiliary": "curl"},
        {"encoder": "vit", "image_size": 80},
        {"method": "soda", "augment": "conv"},
        {"method": "svea", "auxiliary": "soda"},
        {"recipe": {"beta": 0.0}},
    ):
        configure("walker_walk", **changes)  # type: ignore[arg-type]
    configure("toy:make", base="dqn")  # its actions may be discrete: the environment will say


def test_a_configuration_without_a_task() -> None:
    with pytest.raises(UserError, match="config lacks task"):
        from_dict({})


JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8),
    st.binary(max_size=3), st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
    st.sampled_from([10**400, -(10**400), 2**63, "conv|", "+", "a:b", ":", "none", "1h", "٣s"]),
)  # fmt: skip


@settings(max_examples=200)
@given(st.sampled_from([*FIELDS, "nonsense"]), JUNK)
def test_junk_values_are_refused_or_taken_never_more(name: str, value: Any) -> None:
    for make in (from_dict, lambda values: configure(**values)):
        try:
            config = make({"task": "walker_walk"} | {name: value})
        except UserError:
            continue
        assert isinstance(config, Config)
        json.dumps(to_dict(config), allow_nan=False)  # what was accepted can be written down


@settings(max_examples=200)
@given(st.sampled_from([(g, name) for g, values in GROUPS.items() for name in values]), JUNK)
def test_junk_in_nested_values(path: tuple[str, str], value: Any) -> None:
    group, name = path
    try:
        config = from_dict({"task": "walker_walk", group: {name: value}})
    except UserError:
        return
    assert to_dict(config)[group][name] == value
    json.dumps(to_dict(config), allow_nan=False)


# Comparing ----------------------------------------------------------------------------------------


def test_differences_name_what_matters_and_nothing_else() -> None:
    old = to_dict(configure("walker_walk"))
    same = configure(
        "walker_walk", decisions=7, out="x", device="cpu", time_limit="1h", save_every=3
    )
    assert differences(old, to_dict(same)) == []
    new = to_dict(configure("walker_walk", seed=2, network={"hidden": 8}))
    assert differences(old, new) == ["network.hidden: 1024 there, 8 here", "seed: 0 there, 2 here"]
    assert differences({}, {"extra": 1}) == ["extra: None there, 1 here"]


def test_fields_that_may_change_exist() -> None:
    assert FIELDS.keys() >= MAY_CHANGE


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90s", 90),
        ("90", 90),
        ("9m", 540),
        ("1h30m", 5400),
        ("2h", 7200),
        ("1h1m1s", 3661),
        ("0s", 0),
    ],
)
def test_wall_times(text: str, expected: float) -> None:
    assert seconds(text) == expected


@pytest.mark.parametrize("text", ["", " ", "h", "-1s", "1.5h", "1d", "30m1h", "9999999s", "inf"])
def test_no_wall_times(text: str) -> None:
    with pytest.raises(UserError, match="time_limit is"):
        seconds(text)


def test_no_limit_is_infinite() -> None:
    assert seconds("none") == float("inf")
