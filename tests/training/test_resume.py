"""An interrupted run is the uninterrupted one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_runs import tiny
from whole_runs import assert_same, metrics, train_until

from svea.core import files
from svea.core.errors import StorageError, UserError
from svea.runs import checkpoint
from svea.speed.device import missing_for_compiling
from svea.training import Trainer, train, trainer

torch.set_num_threads(1)


INTERRUPTIONS: dict[str, Callable[[Trainer], bool]] = {
    "before the first evaluation": lambda t: t.decision == 0,
    "in the warm-up, mid-episode": lambda t: t.decision >= 5,
    "before the burst of updates": lambda t: t.owed_updates == 11,
    "in the burst of updates": lambda t: 0 < t.owed_updates <= 6,
    "during an evaluation": lambda t: t.decision == 15 and t.next_evaluation == 15,
    "at an episode's end": lambda t: t.decision == 20,
    "mid-episode": lambda t: t.decision >= 27,
    "during the last evaluation": lambda t: t.decision == 40,
}


def test_a_run_interrupted_everywhere_is_the_uninterrupted_run(
    uninterrupted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny(tmp_path / "interrupted")
    for where, stop in INTERRUPTIONS.items():
        train_until(monkeypatch, config, stop)
        saved = checkpoint.load(config.folder)
        assert saved is not None, where
        assert saved.state["next_evaluation"] <= saved.decision or saved.decision < 40, where
    train(config)
    assert_same(uninterrupted, config.folder)


def test_a_run_from_before_an_option_existed_continues_with_its_default(copied: Path) -> None:
    """And with an option that there was once, if it was the default."""
    stored = json.loads((copied / "config.json").read_text())
    del stored["mask"], stored["sac"]["temperature_beta1"]
    (copied / "config.json").write_text(json.dumps(stored | {"updates_per_decision": 1.0}))
    with pytest.raises(UserError, match=r"mask: 'none' there, 'madi' here"):
        train(tiny(copied, decisions=45, mask="madi"))
    train(tiny(copied, decisions=45))
    assert json.loads((copied / "config.json").read_text())["mask"] == "none"
    (copied / "config.json").write_text(json.dumps(stored | {"updates_per_decision": 0.5}))
    with pytest.raises(UserError, match=r"updates_per_decision is 0\.5"):
        train(tiny(copied, decisions=46))


@pytest.mark.skipif(
    bool(missing_for_compiling(torch.device("cpu"))), reason="no C compiler is here"
)
def test_a_run_that_continues_at_another_speed_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    train_until(monkeypatch, tiny(tmp_path / "run", speed="eager"), lambda t: t.decision >= 20)
    train_until(monkeypatch, tiny(tmp_path / "run", speed="eager"), lambda t: t.decision >= 25)
    assert "by rounding" not in capsys.readouterr().out
    train(tiny(tmp_path / "run", speed="compiled"))
    assert "updates ran eager before and run compiled now" in capsys.readouterr().out


def test_parallel_environments_resume_exactly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three environments, episodes that really end, and a ring that wraps."""
    changes: dict[str, Any] = {
        "envs": 3,
        "task": "toy:make_terminating",
        "replay": 15,
        "episode_frames": 4,
    }
    whole = train(tiny(tmp_path / "whole", **changes))
    config = tiny(tmp_path / "parts", **changes)
    train_until(monkeypatch, config, lambda trainer: trainer.decision >= 9)
    train_until(monkeypatch, config, lambda trainer: trainer.decision >= 24)
    train(config)
    assert_same(whole, config.folder)


def test_a_run_does_not_depend_on_which_environments_share_a_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(tiny(tmp_path / "alone", envs=3))
    monkeypatch.setattr(trainer, "environments_per_process", lambda *_: 2)
    train(tiny(tmp_path / "shared", envs=3))
    assert_same(tmp_path / "alone", tmp_path / "shared")


@pytest.mark.parametrize("changes", [{}, {"envs": 3, "decisions": 31, "eval_every": 33}])
def test_an_extended_run_is_a_long_run(tmp_path: Path, changes: dict[str, Any]) -> None:
    short = {"decisions": 30} | changes
    run = train(tiny(tmp_path / "run", **short))
    train(tiny(run, **changes | {"decisions": 45}))
    assert_same(train(tiny(tmp_path / "long", **changes | {"decisions": 45})), run)


def test_a_killed_run_goes_back_to_its_checkpoint(
    uninterrupted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is saved at the end, and log lines came after the checkpoint."""
    config = tiny(tmp_path / "killed")

    def die(trainer: Trainer) -> bool:
        if trainer.decision == 29:
            raise MemoryError
        return False

    with pytest.raises(MemoryError):
        train_until(monkeypatch, config, die)
    saved = checkpoint.load(config.folder)
    assert saved is not None and saved.decision == 20
    assert metrics(config.folder)[-1]["decision"] == 28
    train(config)
    assert_same(uninterrupted, config.folder)


def test_a_dm_control_run_resumes_exactly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changes: dict[str, Any] = {
        "task": "cartpole_swingup", "rendering": "fast", "episode_frames": 80, "decisions": 24,
        "eval_mode": "train", "eval_episodes": 1,
    }  # fmt: skip
    whole = train(tiny(tmp_path / "whole", **changes))
    config = tiny(tmp_path / "parts", **changes)
    train_until(monkeypatch, config, lambda t: t.decision >= 17)  # in the middle of an episode
    train(config)
    assert_same(whole, config.folder)


def test_exploration_schedules_continue_after_a_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DQN's share of random actions, in an evaluation that was due when the run stopped."""
    settings: dict[str, Any] = {
        "base": "dqn", "action_bins": 3, "eval_actions": "sampled", "dqn.epsilon_decisions": 30,
    }  # fmt: skip
    config = tiny(tmp_path / "stopped", **settings)
    train_until(monkeypatch, config, lambda t: t.decision == 30 and t.next_evaluation == 30)
    train(config)
    assert_same(train(tiny(tmp_path / "whole", **settings)), tmp_path / "stopped")


def test_a_damaged_checkpoint_is_skipped_and_made_again(
    uninterrupted: Path, copied: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = copied / "checkpoints" / "000000040" / "agent.safetensors"
    data = bytearray(weights.read_bytes())
    data[len(data) // 2] ^= 1
    weights.write_bytes(data)
    train(tiny(copied))
    captured = capsys.readouterr()
    assert "damaged checkpoint skipped" in captured.err and "000000040" in captured.err
    assert "resumed at decision 30" in captured.out
    assert_same(uninterrupted, copied)


def test_with_both_checkpoints_damaged_nothing_is_lost_silently(copied: Path) -> None:
    for weights in copied.glob("checkpoints/*/agent.safetensors"):
        weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(StorageError, match=r"(?s)no checkpoint of this run is whole.*000000030"):
        train(tiny(copied))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("owed_updates", None),
        ("next_log", -1),
        ("seconds", "long"),
        ("random", {"bit_generator": "PCG64"}),
        ("episodes", [{"seed": 1, "number": 0, "actions": [["left"]], "total": 0.0}]),
        ("figures", {"sums": {"q": 1.0}, "counts": 1}),
    ],
)
def test_a_checkpoint_of_another_version_is_refused_by_name(
    copied: Path, name: str, value: Any
) -> None:
    """Whole by its hashes, but without what this version looks for."""
    for place in (copied / "checkpoints").iterdir():
        state = json.loads((place / "state.json").read_text()) | {name: value}
        manifest = json.loads((place / "manifest.json").read_text())
        manifest["files"]["state.json"] = files.write(place / "state.json", [files.to_json(state)])
        manifest.pop("seal")
        sealed = manifest | {"seal": files.seal(manifest)}
        (place / "manifest.json").write_text(json.dumps(sealed))
    with pytest.raises(StorageError, match=name.rstrip("s")) as raised:
        train(tiny(copied, decisions=50))
    assert raised.value.exit_code == 4


def test_a_next_save_in_the_far_future_does_not_end_saving(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a run with other intervals."""
    run = train(tiny(tmp_path / "run", decisions=23, save_every=10**6, log_every=10**6))
    logged: list[int] = []
    config = tiny(run, decisions=40, save_every=10, log_every=5)
    train(config, callback=lambda line: logged.append(line["decision"]))
    assert {25, 30, 35, 40} <= set(logged)
    assert sorted(p.name for p in (run / "checkpoints").iterdir()) == ["000000030", "000000040"]
