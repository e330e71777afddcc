"""What a preset, an encoder, a method and a task decide; a configuration as dictionary and name."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from svea.config import (
    ENCODERS,
    PRESETS,
    Config,
    configure,
    differences,
    from_dict,
    to_dict,
)
from svea.config.presets import LONGEST, bounded, run_name
from svea.core.errors import UserError
from svea.methods import METHODS


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


def test_the_papers_action_repeats() -> None:
    for task, repeat in {"finger_spin": 2, "cartpole_swingup": 8, "walker_walk": 4}.items():
        config = configure(task)
        assert config.action_repeat == repeat == config.environment["action_repeat"]
        assert config.episode_length == 1000 // repeat


def test_a_method_may_decide_the_length_of_returns() -> None:
    named = configure("walker_walk", method="svea-motion")
    spelt = configure("walker_walk", augment="overlay|overlay_drift", **{"sac.n_step": 3})
    assert named.sac == spelt.sac and named.sac.n_step == 3
    assert (named.augment, named.recipe) == (spelt.augment, spelt.recipe)
    assert configure("walker_walk", method="svea-motion", base="ddpg").options.n_step == 3
    assert configure("walker_walk", method="svea-motion", **{"sac.n_step": 1}).sac.n_step == 1
    assert configure("walker_walk", base="ddpg").options.n_step == 3, "the base's own"


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
        ("robot_push", 1.0, 0.5),
        ("robot_reach", 0.5, 0.5),
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
    assert (config.image_size, config.environment["image_size"]) == (48, 56)
    assert configure("walker_walk", method=method, crop=8).rendered_size == 92


def test_method_over_encoder_over_preset(monkeypatch: pytest.MonkeyPatch) -> None:
    config = configure("walker_walk", preset="quick", encoder="vit")
    assert (config.image_size, config.network.width, config.network.hidden) == (48, 64, 256)
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


@pytest.mark.parametrize("base", ["sac", "ddpg", "dqn"])
@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("preset", PRESETS)
def test_every_method_goes_with_every_encoder_and_base(preset, encoder, base):
    for method in METHODS:
        options: dict[str, Any] = {"preset": preset, "encoder": encoder, "base": base}
        options |= {"action_bins": 3} if base == "dqn" else {}
        config = configure("walker_walk", method=method, **options)
        assert from_dict(json.loads(json.dumps(to_dict(config)))) == config


def test_nested_values_by_dictionary_dots_or_dataclass() -> None:
    from svea.recipes import RecipeOptions

    for values in (
        {"recipe": {"alpha": 0.9}}, {"recipe.alpha": 0.9}, {"recipe": RecipeOptions(alpha=0.9)},
    ):  # fmt: skip
        config = configure("walker_walk", **values)
        assert (config.recipe.alpha, config.recipe.beta) == (0.9, 0.5)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({}, "walker_walk-svea-0"),
        ({"seed": 3, "preset": "quick"}, "walker_walk-svea-quick-3"),
        ({"preset": "quick", "recipe.K": 2}, "walker_walk-svea-quick-K2-0"),
        ({"method": "drq", "augment": "conv"}, "walker_walk-drq-conv-0"),
        ({"base": "ddpg", "encoder": "vit"}, "walker_walk-svea-ddpg-vit-0"),
        ({"augment": "conv|cutout"}, "walker_walk-svea-conv_cutout-0"),
        ({"envs": 4, "batch_size": 64}, "walker_walk-svea-envs4-batch_size64-0"),
        ({"sac.learning_rate": 3e-4}, "walker_walk-svea-sac.learning_rate0.0003-0"),
        ({"replay": 1_000_000}, "walker_walk-svea-replay1000000-0"),
        ({"rendering": "fast", "eval_mode": "video_easy"}, "walker_walk-svea-fast-video_easy-0"),
        ({"method": "simgrl"}, "walker_walk-simgrl-0"),
        ({"method": "simgrl", "encoder": "cnn"}, "walker_walk-simgrl-cnn-0"),
        ({"overlay_dir": "/data/photos/"}, "walker_walk-svea-photos-0"),
        ({"method": "curl", "auxiliary": "none"}, "walker_walk-curl-auxiliary_none-0"),
        ({"base": "dqn", "action_bins": 3, "dqn.double": False, "dqn.dueling": True},
         "walker_walk-svea-dqn-no_double-dueling-action_bins3-0"),
        ({"method": "pad", "pad.task": "rotation"}, "walker_walk-pad-rotation-0"),
    ],
    ids=str,
)  # fmt: skip
def test_names(options: dict[str, Any], name: str) -> None:
    config = configure("walker_walk", **options)
    assert run_name(config) == name and config.folder == Path("runs") / name


def test_what_only_watches_or_says_where_and_how_long_is_not_in_the_name() -> None:
    watching = {"eval_every": 7, "eval_episodes": 3, "log_every": 5}
    where = {"decisions": 1000, "device": "cpu", "data_dir": "data", "speed": "eager"}
    assert configure("walker_walk", **watching, **where).folder.name == "walker_walk-svea-0"
    assert configure("toy:make", method="drq+aug").folder == Path("runs/toy_make-drq+aug-0")
    assert configure("toy:make", out="a/b").folder == Path("a/b")


def test_long_names_are_cut_and_stay_apart() -> None:
    many = {"envs": 4, "warmup": 999, "batch_size": 64, "replay": 70_000, "image_size": 88}
    many |= {"recipe.alpha": 0.25, "recipe.beta": 0.75, "network.hidden": 512, "shift": 3}
    one, two = (configure("walker_walk", **many, seed=7, episode_frames=n) for n in (500, 600))
    names = {run_name(one), run_name(two)}
    assert len(names) == 2 and all(len(name) <= LONGEST for name in names)
    assert all(n.startswith("walker_walk-svea-warmup999-") and n.endswith("-7") for n in names)
    assert len(bounded("ü" * 500, "s0", 200).encode()) <= 200


FIELDS = {
    field.name: getattr(Config("walker_walk"), field.name) for field in dataclasses.fields(Config)
}
GROUPS = {
    name: value for name, value in to_dict(Config("walker_walk")).items() if isinstance(value, dict)
}


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


def test_differences_name_what_matters_and_nothing_else() -> None:
    old = to_dict(configure("walker_walk"))
    same = configure(
        "walker_walk", decisions=7, out="x", device="cpu", time_limit="1h", save_every=3,
        eval_every=3, eval_episodes=1, log_every=2,
    )  # fmt: skip
    assert differences(old, to_dict(same)) == []
    new = to_dict(configure("walker_walk", seed=2, network={"hidden": 8}))
    assert differences(old, new) == ["network.hidden: 1024 there, 8 here", "seed: 0 there, 2 here"]
    assert differences({}, {"extra": 1}) == ["extra: None there, 1 here"]


def test_a_dictionary_that_holds_itself_is_refused() -> None:
    endless: dict[str, Any] = {}
    endless["learning_rate"] = endless
    with pytest.raises(UserError, match=r"sac\.learning_rate\..* is nested too deeply"):
        configure("walker_walk", sac=endless)
