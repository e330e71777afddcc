"""What a manifest seals is still checked: every field, every tensor, before anything is used."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from faults.hostile import newest
from faults.sealed import (
    VALUES,
    change_state,
    change_tensor,
    continued,
    make_run,
    places,
    seal,
    tensor_changes,
    write_tensors,
)
from svea.agents import make_agent, make_replay
from svea.agents.agent import Phase
from svea.core.errors import StorageError
from svea.runs import checkpoint, tensors
from svea.training import saved_state, train

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("sealed") / "run")


def take_over(run: Path) -> None:
    """Resume without environments, and make an update: refusals are StorageErrors."""
    config = continued(run)
    saved = checkpoint.load(run)
    assert saved is not None
    saved_state.check(config, saved)
    try:
        saved_state.check_episodes(saved.state["episodes"], 1)
        agent = make_agent(config, 1)
        agent.load_state_dict(saved.agent)
    except tensors.DAMAGE as error:
        raise saved_state.unusable(run, saved, error) from error
    replay = make_replay(config, 1)
    checkpoint.restore_replay(run, saved, replay)
    if len(replay):
        agent.update(
            replay.sample(config.batch_size), Phase(actor=True, target=True, auxiliary=True)
        )


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_sealed_edit_is_refused_or_does_no_harm(
    whole: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    run = tmp_path_factory.mktemp("edited") / "run"
    shutil.copytree(whole, run)
    kind = data.draw(st.sampled_from(["state", "weights", "segment"]))
    if kind == "state":
        state = json.loads((newest(run) / "state.json").read_text())
        way = data.draw(st.sampled_from(list(places(state))))
        junk = st.one_of(st.sampled_from(VALUES), st.integers(), st.floats(allow_nan=False))
        changed = change_state(state, way, data.draw(junk), data.draw(st.booleans()))
        seal(run, "state.json", json.dumps(changed).encode())
    else:
        segment = 0 if kind == "segment" else None
        path = newest(run) / "agent.safetensors"
        path = path if segment is None else min((run / "replay").iterdir())
        content = {name: tensor.clone() for name, tensor in load_file(path).items()}
        name = data.draw(st.sampled_from(sorted(content)))
        tensor = change_tensor(content.pop(name), data.draw(st.sampled_from(tensor_changes())))
        write_tensors(run, content if tensor is None else content | {name: tensor}, segment)
    try:
        take_over(run)
    except StorageError as error:
        assert str(run) in str(error)
    finally:
        shutil.rmtree(run.parent)


def test_the_same_content_sealed_again_is_taken_over(whole: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(whole, tmp_path / "run"))
    write_tensors(run, load_file(newest(run) / "agent.safetensors"))
    seal(run, "state.json", (newest(run) / "state.json").read_bytes())
    take_over(run)
    train(continued(run))


@pytest.mark.parametrize(
    ("way", "value", "words"),
    [
        (("owed_updates",), -5, "owed_updates is -5"),
        (("updates",), "many", "updates is 'many'"),
        (("seconds",), "long", "seconds is 'long'"),
        (("next_log",), None, "next_log is None"),
        (("next_save",), "soon", "next_save is 'soon'"),
        (("next_evaluation",), "now", "next_evaluation is 'now'"),
        (("log_offset",), -1, "log_offset is -1"),
        (("episodes",), "none", "episodes is 'none'"),
        (("episodes", 0, "seed"), -1, "seed is -1"),
        (("episodes", 0, "actions"), [["left"]], "an action is 'left'"),
        (("random", "state", "inc"), "odd", "random's inc is 'odd'"),
        (("figures", "sums"), {"q": 1.0}, "counts has other keys"),
        # plausible, but not what a run at decision 23 has
        (("owed_updates",), 1, "updates is 22; allowed: an integer from 21 to 21"),
        (("updates",), 21, "updates is 21; allowed: an integer from 22 to 22"),
        (("log_offset",), 7, "log_offset is 7, in the middle of a line"),
        (("episodes", 0, "seed"), 7, "an episode's seed is 7"),
        (("episodes", 0, "number"), 24, "an episode's number is 24"),
        (("figures",), {"sums": {"q": 1.0}, "counts": {"q": 23}}, "the count of q is 23"),
        (("replay", "first_transition"), 10**9, "first_transition is 1000000000"),
        (("replay", "stacks", "0"), [0, 1, 10**9], "a frame of a stack is 1000000000"),
    ],
)
def test_what_is_wrong_in_a_state_is_named(
    whole: Path, tmp_path: Path, way: tuple[Any, ...], value: Any, words: str
) -> None:
    run = Path(shutil.copytree(whole, tmp_path / "run"))
    state = json.loads((newest(run) / "state.json").read_text())
    seal(run, "state.json", json.dumps(change_state(state, way, value, False)).encode())
    with pytest.raises(StorageError, match=words) as raised:
        take_over(run)
    assert raised.value.exit_code == 4


def test_adam_cannot_have_made_more_steps_than_the_run(whole: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(whole, tmp_path / "run"))
    content = load_file(newest(run) / "agent.safetensors")
    name = next(name for name in content if name.endswith(".step"))
    write_tensors(run, content | {name: torch.tensor(1000.0)})
    with pytest.raises(StorageError, match=f"{name} is 1000 after 22 updates"):
        take_over(run)


def test_a_next_save_in_the_far_future_does_not_end_saving(whole: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(whole, tmp_path / "run"))
    state = json.loads((newest(run) / "state.json").read_text())
    far = state | {"next_save": 10**6, "next_log": 10**6}
    seal(run, "state.json", json.dumps(far).encode())
    saved = []
    config = dataclasses.replace(continued(run), decisions=40, save_every=10, log_every=5)
    train(config, callback=lambda line: saved.append(line["decision"]))
    assert {25, 30, 35, 40} <= set(saved), "logged"
    assert sorted(p.name for p in (run / "checkpoints").iterdir()) == ["000000030", "000000040"]


def test_a_moment_of_one_element_is_refused_before_adam_writes_to_it(
    whole: Path, tmp_path: Path
) -> None:
    run = Path(shutil.copytree(whole, tmp_path / "run"))
    content = load_file(newest(run) / "agent.safetensors")
    moments = [name for name in content if name.endswith("exp_avg")]
    name = max(moments, key=lambda name: content[name].numel())
    write_tensors(run, content | {name: torch.zeros(1)})
    with pytest.raises(StorageError, match=rf"{name} is float32 \[1\], not"):
        take_over(run)
