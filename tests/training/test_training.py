"""Whole runs on the toy environment: above all, an interrupted run is the uninterrupted one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_runs import tiny
from toy import LENGTH, Toy

from svea import training
from svea.config import Config, configure
from svea.envs import rendering
from svea.envs.workers.pool import DRAWN_TOGETHER
from svea.errors import NumericsError, StorageError, SveaError, UserError
from svea.evidence.evaluation import evaluate
from svea.replay import Replay
from svea.runs import checkpoint, layout
from svea.runs.load import load_agent, load_config
from svea.seeds import TRAINING, episode_seed
from svea.speed.device import missing_for_compiling
from svea.training import Trainer, train

torch.set_num_threads(1)

WALL_CLOCK = ("seconds", "updates_per_second", "decisions_per_second")


def metrics(run: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k not in WALL_CLOCK} for line in lines]


def outcome(run: Path) -> dict[str, Any]:
    """All that a run leaves behind, without the times of the clock on the wall."""
    config, saved = load_config(run), checkpoint.load(run)
    assert saved is not None
    decisions = max(config.decisions, saved.decision)
    replay = Replay(min(config.replay, decisions), config.image_size, 1, config.envs, 10)
    checkpoint.restore_replay(run, saved, replay)
    return {
        "decision": saved.decision,
        "tensors": saved.agent,
        "replay": vars(replay.gather(torch.arange(len(replay)))),
        "state": {k: v for k, v in saved.state.items() if k not in ("seconds", "log_offset")},
        "metrics": metrics(run),
    }


def assert_same(one: Path, two: Path) -> None:
    first, second = outcome(one), outcome(two)
    assert first["metrics"] == second["metrics"]
    assert first["state"] == second["state"]
    for part in ("tensors", "replay"):
        assert first[part].keys() == second[part].keys()
        for name, tensor in first[part].items():
            assert torch.equal(tensor, second[part][name]), f"{part}: {name}"


def train_until(
    monkeypatch: pytest.MonkeyPatch, config: Config, stop: Callable[[Trainer], bool]
) -> None:
    """Train as if the time limit came when a condition is met."""
    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "must_stop", stop)
        train(config)


# Exact resume -------------------------------------------------------------------------------------

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


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tiny(tmp_path_factory.mktemp("runs") / "uninterrupted"))


def test_an_uninterrupted_run_logs_everything(uninterrupted: Path) -> None:
    lines = metrics(uninterrupted)
    evaluations = [line for line in lines if line["kind"] == "eval"]
    assert [line["decision"] for line in evaluations] == [0, 15, 30, 40]
    assert all(line["mode"] == "train" and len(line["returns"]) == 2 for line in evaluations)
    episodes = [line for line in lines if line["kind"] == "episode"]
    assert [(e["decision"], e["length"]) for e in episodes] == [
        (10, 10),
        (20, 10),
        (30, 10),
        (40, 10),
    ]
    trained = [line["decision"] for line in lines if line["kind"] == "train"]
    assert trained == [14, 21, 28, 35]
    saved = checkpoint.load(uninterrupted)
    assert saved is not None
    # As in the reference: 12 at once in the decision after the warm-up's 12, then one each.
    assert saved.state["updates"] == 12 + (40 - 13)
    assert [p.name for p in layout.checkpoints(uninterrupted)] == ["000000030", "000000040"]


def test_the_replay_holds_what_the_environment_showed(uninterrupted: Path) -> None:
    """Every episode, played again here from its seed and its stored actions."""
    stored = outcome(uninterrupted)["replay"]
    environment = Toy()
    for row in range(40):
        if row % LENGTH == 0:
            seed = episode_seed(0, TRAINING, 0, row // LENGTH)
            before, _ = environment.reset(seed=seed)
        after, reward, *_ = environment.step(stored["actions"][row].numpy())
        assert np.array_equal(stored["observations"][row], before), row
        assert np.array_equal(stored["next_observations"][row], after), row
        assert stored["rewards"][row].item() == np.float32(reward)
        before = after


def test_a_run_is_a_function_of_its_seed(uninterrupted: Path, tmp_path: Path) -> None:
    assert_same(uninterrupted, train(tiny(tmp_path / "again")))
    other = train(tiny(tmp_path / "other", seed=1))
    assert outcome(other)["metrics"] != outcome(uninterrupted)["metrics"]


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


@pytest.mark.skipif(
    bool(missing_for_compiling(torch.device("cpu"))), reason="no C compiler is here"
)
def test_a_run_that_goes_on_at_another_speed_says_so(
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


def test_a_run_does_not_depend_on_who_shares_a_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(tiny(tmp_path / "alone", envs=3))
    monkeypatch.setattr(Trainer, "_drawn_together", lambda trainer: 2)
    train(tiny(tmp_path / "shared", envs=3))
    assert_same(tmp_path / "alone", tmp_path / "shared")


@pytest.mark.parametrize(
    ("device", "task", "gpu", "together"),
    [
        ("cuda", "walker_walk", True, DRAWN_TOGETHER),
        ("cuda", "robot_push", True, DRAWN_TOGETHER),
        ("cuda", "walker_walk", False, 1),
        ("cuda", "toy:make", True, 1),
        ("cpu", "walker_walk", True, 1),
    ],
)
def test_environments_draw_together_where_one_gpu_learns_and_draws(
    device: str, task: str, gpu: bool, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rendering, "draws_on_gpu", lambda: gpu)
    trainer = Trainer.__new__(Trainer)
    trainer.config, trainer.device = configure(task), torch.device(device)
    assert trainer._drawn_together() == together


@pytest.mark.parametrize("changes", [{}, {"envs": 3, "decisions": 31, "eval_every": 33}])
def test_an_extended_run_is_a_long_run(tmp_path: Path, changes: dict[str, Any]) -> None:
    short = {"decisions": 30} | changes
    run = train(tiny(tmp_path / "run", **short))
    train(tiny(run, **changes | {"decisions": 45}))
    assert_same(train(tiny(tmp_path / "long", **changes | {"decisions": 45})), run)


def test_extending_asks_for_no_extra_evaluation(tmp_path: Path) -> None:
    run = train(tiny(tmp_path / "run", decisions=20))
    train(tiny(run, decisions=40))
    evaluated = [line["decision"] for line in metrics(run) if line["kind"] == "eval"]
    assert evaluated == [0, 15, 20, 30, 40]


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


def test_control_c_saves_and_the_same_command_continues(tmp_path: Path) -> None:
    run = tmp_path / "run"
    flags = (
        "--image-size 16 --shift 1 --network.layers 2 --network.filters 4 --network.projection 8 "
        "--network.hidden 16 --batch-size 8 --warmup 12 --episode-frames 10 --eval-every 15 "
        "--eval-episodes 2 --eval-envs 1 --log-every 7 --save-every 10 --device cpu "
        f"--precision float32 --replay 60 --out {run}"
    )
    path = os.pathsep.join(p for p in sys.path if p)
    environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}

    def command(decisions: int) -> subprocess.Popen[str]:
        words = f"-m svea train toy:make {flags} --decisions {decisions}".split()
        return subprocess.Popen(
            [sys.executable, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            text=True,
        )

    first = command(100_000)
    log = run / "metrics.jsonl"
    while first.poll() is None and not (log.exists() and log.read_text().count("episode") > 4):
        time.sleep(0.02)
    first.send_signal(signal.SIGINT)
    _, errors = first.communicate(timeout=60)
    assert first.returncode == 130, errors
    assert "stopped and saved at decision" in errors and "Traceback" not in errors
    saved = checkpoint.load(run)
    assert saved is not None
    length = saved.decision + 13
    second = command(length)
    output, errors = second.communicate(timeout=60)
    assert second.returncode == 0, errors
    assert f"resumed at decision {saved.decision:,}" in output
    assert_same(train(tiny(tmp_path / "whole", decisions=length, replay=60)), run)


def test_the_time_limit_saves_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = train(tiny(tmp_path / "run", time_limit="0s"))
    assert "time limit: saved at decision 0" in capsys.readouterr().out
    saved = checkpoint.load(run)
    assert saved is not None and saved.decision == 0
    train(tiny(run, decisions=20))
    assert "done: 20 decisions" in capsys.readouterr().out


def test_training_from_another_thread(uninterrupted: Path, tmp_path: Path) -> None:
    """As a notebook server does; signals cannot be handled there."""
    thread = threading.Thread(target=train, args=[tiny(tmp_path / "run")])
    thread.start()
    thread.join()
    assert_same(uninterrupted, tmp_path / "run")


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


# Bootstrapping and divergence ---------------------------------------------------------------------


@pytest.mark.parametrize(("task", "ends"), [("toy:make", 0), ("toy:make_terminating", 6)])
def test_the_replay_knows_real_ends_from_time_limits(tmp_path: Path, task: str, ends: int) -> None:
    run = train(tiny(tmp_path / "run", task, decisions=24, episode_frames=4, eval_every=100))
    assert (outcome(run)["replay"]["discounts"] == 0).sum() == ends


def test_a_diverged_run_says_so_and_keeps_its_last_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny(tmp_path / "run", log_every=1000)
    update = Trainer.update

    def diverge(trainer: Trainer, decision: int) -> None:
        update(trainer, decision)
        if decision == 25:
            trainer.figures.add({"critic_loss": torch.tensor(torch.nan)})

    monkeypatch.setattr(Trainer, "update", diverge)
    with pytest.raises(NumericsError, match="critic_loss became"):
        train(config)
    saved = checkpoint.load(config.folder)
    assert saved is not None and saved.decision == 20


# Folders and mistakes -----------------------------------------------------------------------------


@pytest.fixture
def copied(uninterrupted: Path, tmp_path: Path) -> Path:
    import shutil

    return Path(shutil.copytree(uninterrupted, tmp_path / "copied"))


def test_a_finished_run_is_left_alone(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {p: p.read_bytes() for p in copied.rglob("*.safetensors")}
    train(tiny(copied))
    assert "is finished (40 decisions); a larger --decisions extends it" in capsys.readouterr().out
    assert {p: p.read_bytes() for p in copied.rglob("*.safetensors")} == before


def test_another_configuration_is_refused_by_name(copied: Path) -> None:
    with pytest.raises(UserError) as refusal:
        train(tiny(copied, batch_size=9, recipe={"alpha": 0.7}, seed=4))
    message = str(refusal.value)
    for line in (
        "batch_size: 8 there, 9 here",
        "recipe.alpha: 0.5 there, 0.7 here",
        "seed: 0 there",
    ):
        assert line in message
    assert "image_size" not in message and "--out" in message


def test_how_to_run_may_change(copied: Path) -> None:
    train(tiny(copied, save_every=7, eval_envs=2, time_limit="1h"))


def test_fewer_decisions_than_done_are_refused(copied: Path) -> None:
    with pytest.raises(UserError, match=r"decisions is 30.*already at 40"):
        train(tiny(copied, decisions=30))


def test_foreign_folders_are_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(UserError, match="is not empty and not a run"):
        train(tiny(tmp_path))
    with pytest.raises(UserError, match="is not empty and not a run"):
        train(tiny(tmp_path / "thesis.tex"))


def test_a_damaged_checkpoint_is_passed_over_and_remade(
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


def test_a_run_that_does_not_fit_is_refused_before_it_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training.machine, "available_bytes", lambda: 10_000)
    with pytest.raises(UserError, match=r"replay buffer of 40 decisions needs .* GB.*--replay"):
        train(tiny(tmp_path / "run"))


def test_a_run_that_never_saved_may_be_begun_anew_with_other_options(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be imported"):
        train(tiny(tmp_path / "run", "toy:make_nothing"))
    run = train(tiny(tmp_path / "run", decisions=1, warmup=1))
    assert load_config(run).task == "toy:make"


def test_mistakes_in_the_users_environment_reach_the_user(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="observation space"):
        train(tiny(tmp_path / "grey", "toy:make_grey"))
    with pytest.raises(UserError, match=r"cannot be imported.*PYTHONPATH"):
        train(tiny(tmp_path / "missing", "toy:make_nothing"))
    assert not list(tmp_path.iterdir()), "a folder that looks like a run is left"


# Learning -----------------------------------------------------------------------------------------


def test_svea_learns_the_toy_from_pixels(tmp_path: Path) -> None:
    """Random play earns 3.8 of 10; seeds 0 to 4 come to 8.6 or more, where 9 is nearly the best."""
    run = train(
        tiny(
            tmp_path / "run",
            decisions=500,
            warmup=150,
            batch_size=32,
            network={
                "layers": 2,
                "strided_layers": 2,
                "filters": 8,
                "projection": 16,
                "hidden": 64,
            },
            eval_every=10_000,
            save_every=10_000,
            log_every=10_000,
            eval_episodes=1,
        )
    )
    agent = [r["return"] for r in evaluate(run, episodes=20, environments=1)]
    chance = [r["return"] for r in evaluate(run, episodes=20, environments=1, policy="random")]
    assert load_agent(run).decision == 500
    assert np.mean(agent) > np.mean(chance) + 3, (np.mean(agent), np.mean(chance))


# Several runs in one process ----------------------------------------------------------------------


def test_runs_that_take_turns_are_the_runs_alone(tmp_path: Path) -> None:
    alone = [train(tiny(tmp_path / f"alone-{seed}", seed=seed)) for seed in (0, 1)]
    together = training.train_together(
        [tiny(tmp_path / f"together-{seed}", seed=seed) for seed in (0, 1)]
    )
    for one, other in zip(alone, together, strict=True):
        assert_same(one, other)


def test_a_run_that_fails_does_not_take_the_others_down(tmp_path: Path) -> None:
    good, bad = tiny(tmp_path / "good"), tiny(tmp_path / "bad", "toy:make_broken", seed=1)
    with pytest.raises(SveaError, match="the toy broke"):
        training.train_together([bad, good])
    assert_same(train(tiny(tmp_path / "alone")), tmp_path / "good")


def test_exploration_schedules_go_on_after_a_resume(
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
