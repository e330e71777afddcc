"""What a page may say: everything else is refused, with a reason and without an accident."""

import contextlib
import json
from dataclasses import asdict, fields
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from svea.config.factors import FACTORS
from svea.config.modes import modes_of
from svea.core.errors import UserError
from svea.play.setting import (
    DEFAULT,
    FORMER,
    LONGEST_MESSAGE,
    OPTIONS,
    Setting,
    grouped_modes,
    read_setting,
)

CLIPS = ["generated/0", "generated/1"]
NUMBERS = [option for option in OPTIONS.values() if option.bounds]


@pytest.mark.parametrize("option", NUMBERS, ids=lambda option: option.path)
def test_numbers_have_both_bounds(option: Any):
    name, least, most = option.path, option.bounds.least, option.bounds.most
    for value in (least, most):
        assert getattr(read_setting({name: option.type(value)}, CLIPS), name) == value
    for value in (least - 1, most + 1, 10**400, float("nan"), float("inf"), True, None, "1", [1]):
        with pytest.raises(UserError):
            read_setting({name: value}, CLIPS)


@pytest.mark.parametrize(
    "given",
    [
        {"body": "red"}, {"sky": "#12345"}, {"floor": "#GGGGGG"}, {"floor": "#000000; x"},
        {"mode": "no_such"}, {"mode": "os:system"}, {"mode": "distracting_cs:0.3"}, {"mode": 3},
        {"video": "/etc/passwd"}, {"video": "generated/9"}, {"video_on_floor": 1},
        {"overlay": "all"}, {"run": "runs/secret"}, {"data_dir": "/"}, {"__class__": 1},
        [], None, "mode", 7,
    ],
)  # fmt: skip
def test_what_is_not_offered_is_refused(given: Any):
    with pytest.raises(UserError):
        read_setting(given, CLIPS)


def test_a_setting_survives_its_way_through_json():
    shown = {"mode": "distracting_cs", "intensity": 0.3, "noise": 0, "video": CLIPS[1]}
    changed = read_setting(shown | {"body": "#00ff88", "speed": 2}, CLIPS)
    assert read_setting(json.loads(json.dumps(asdict(changed))), CLIPS) == changed
    assert changed.mode_name == "distracting_cs:0.3" and not changed.is_exact
    assert DEFAULT.is_exact and read_setting({"mode": "video_hard", "seed": 3}, CLIPS).is_exact
    assert len(json.dumps({"do": "start", "setting": asdict(changed)})) < LONGEST_MESSAGE / 4


@pytest.mark.parametrize("was", FORMER)
def test_links_from_before_the_factors_still_say_the_same(was: str):
    factor = FACTORS[FORMER[was]]
    setting = read_setting({was: factor.most}, CLIPS)
    assert setting == read_setting({factor.name: factor.most}, CLIPS)
    assert setting.variation == {factor.name: factor.most} and not setting.is_exact
    assert read_setting({was: factor.neutral}, CLIPS, setting).is_exact
    for value in (factor.most + 1, "1", True, float("nan")):
        with pytest.raises(UserError):
            read_setting({was: value}, CLIPS)


def test_the_page_knows_every_field():
    from importlib import resources

    page = resources.files("svea.play").joinpath("page")
    script, html = page.joinpath("controls.js").read_text(), page.joinpath("index.html").read_text()
    defaults = script.split("DEFAULTS = {")[1].split("};")[0]
    for factor in FACTORS.values():
        assert f'data-factors="{factor.group}"' in html, factor.name
    for field in fields(Setting):
        if field.name == "variation":
            continue  # its sliders are made from the table above
        written = json.dumps(field.default).removesuffix(".0")
        assert f"{field.name}: {written}," in " ".join(defaults.split()) + ",", field.name
        assert f'id="{field.name}"' in html, field.name


def test_modes_are_offered_that_some_agent_has():
    walker = grouped_modes(["walker_walk"])
    assert walker["training"] == ["train"] and "color_hard" in walker["colors"]
    assert "test" not in walker["others"] and "distracting_cs" in walker["others"]
    robot = grouped_modes(["robot_reach"])
    assert robot == {"training": ["train"], "others": ["test", "picture_colors", "picture_video"]}
    both = grouped_modes(["walker_walk", "robot_reach"])
    assert {mode for modes in both.values() for mode in modes} == set(modes_of(None))


@settings(max_examples=30)
@given(st.recursive(st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
                    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))  # fmt: skip
def test_any_json_is_a_setting_or_a_user_error(value: Any):
    names = [field.name for field in fields(Setting)]
    for given_value in (value, *({name: value} for name in names)):
        with contextlib.suppress(UserError):
            read_setting(given_value, CLIPS)


def test_a_task_without_the_mode_is_shown_in_training_and_says_so():
    video = read_setting({"mode": "video_hard"}, CLIPS)
    assert video.mode_in("walker_walk") == ("video_hard", {}, "")
    name, _, why = video.mode_in("robot_reach")
    assert name == "train" and "robot_reach" in why
    name, _, why = read_setting({"mode": "video_easy"}, CLIPS).mode_in("reacher_easy")
    assert name == "train" and "sky" in why
