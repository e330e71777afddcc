"""Names in a run folder, above all which checkpoint is the newest; and how large a run is."""

from pathlib import Path
from typing import Any

import pytest

from svea.agents import make_agent
from svea.config import configure
from svea.replay import Replay
from svea.runs import layout
from svea.runs.layout import agent_bytes, folder_bytes, replay_bytes


def saved(run: Path, *names: str) -> Path:
    for name in names:
        (run / "checkpoints" / name).mkdir(parents=True)
    return run


def test_a_folder_without_checkpoints_has_no_newest_one(tmp_path: Path) -> None:
    assert layout.checkpoints(tmp_path) == []
    assert layout.newest_checkpoint(tmp_path) == -1
    assert layout.next_checkpoint(tmp_path, 5).name == "000000005"


@pytest.mark.parametrize(
    ("names", "newest", "following"),
    [
        (("000000100",), 100, "000000100.1"),
        (("000000100.1", "000000100.2"), 100, "000000100.3"),
        (("000000100.10", "000000100.9"), 100, "000000100.11"),
        (("000000050.7", "000000100"), 100, "000000100.1"),
        (("1000000000", "000000100"), 1_000_000_000, "000000100.1"),
    ],
)
def test_repetitions_of_a_decision_count(tmp_path, names, newest, following):
    run = saved(tmp_path, *names)
    assert layout.newest_checkpoint(run) == newest
    assert layout.next_checkpoint(run, 100).name == following


def test_other_names_are_not_checkpoints(tmp_path: Path) -> None:
    run = saved(tmp_path, "notes", "100.", "100.x", "1.2.3", ".000000200.17.partial", "000000007")
    assert [path.name for path in layout.checkpoints(run)] == ["000000007"]


def test_what_makes_a_run_and_an_export(tmp_path: Path) -> None:
    assert not layout.is_run(tmp_path)
    (tmp_path / layout.CONFIG).touch()
    assert layout.is_run(tmp_path) and not layout.is_export(tmp_path)
    (tmp_path / layout.ACTOR).touch()
    assert layout.is_export(tmp_path)


def test_the_replay_takes_as_many_bytes_as_announced() -> None:
    config = configure("walker_walk", preset="quick", decisions=101, envs=2)
    replay = Replay(102, config.rendered_size, 6, config.envs, config.episode_length)
    rings = (replay.frames, replay.windows, replay.actions, replay.rewards, replay.terminated)
    tensors = sum(ring.nbytes for ring in (*rings, replay.last))
    assert replay_bytes(config, actions=6) == tensors + replay.first_frames.nbytes


@pytest.mark.parametrize(
    "options",
    [
        {"base": "ddpg", "encoder": "drqv2"},
        {"base": "dqn", "action_bins": 3},
        {"encoder": "frames"},
        {"encoder": "vit"},
        {"method": "soda"},
        {"preset": "quick", "method": "curl"},
    ],
)
def test_an_agent_is_not_larger_than_estimated_without_making_it(options: dict[str, Any]) -> None:
    config = configure("walker_walk", **options)
    agent = make_agent(config, 8)
    moments = sum(
        2 * p.nbytes for o in agent.optimisers.values() for p in o.param_groups[0]["params"]
    )
    exact = sum(tensor.nbytes for tensor in agent.learned().values()) + moments
    assert exact <= agent_bytes(config) <= 4 * exact + 16_000_000


def test_a_folder_holds_the_replay_three_checkpoints_and_the_log() -> None:
    config = configure("walker_walk", decisions=1000)
    assert 0 < folder_bytes(config, 10**9, 10**6) - 10**9 - 3 * 10**6 < 10**5
