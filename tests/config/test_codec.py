"""Configurations as dictionaries: what comes back, what is refused, what differs."""

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from svea.config import Config, configure, differences, from_dict, to_dict
from svea.core.errors import UserError

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
