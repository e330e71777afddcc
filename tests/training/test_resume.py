"""Which folders a run may be in; and an interrupted run is the uninterrupted one."""

import dataclasses
import json
import os
import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from tiny_runs import tiny
from whole_runs import assert_same, metrics, train_until

from svea.core import files
from svea.core.errors import StorageError, UserError
from svea.evaluation.requests import evaluate
from svea.runs import checkpoint, layout
from svea.runs.load import load_config
from svea.speed.device import missing_for_compiling
from svea.training import Trainer, train
from svea.training.evaluators import Evaluators
from svea.training.resume import open_folder


def test_a_finished_run_is_left_alone(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {p: p.read_bytes() for p in copied.rglob("*.safetensors")}
    train(tiny(copied))
    assert "is finished (40 decisions); a larger --decisions extends it" in capsys.readouterr().out
    assert {p: p.read_bytes() for p in copied.rglob("*.safetensors")} == before


@pytest.mark.skipif(sys.platform != "linux", reason="the kit of faults reads /proc")
def test_a_run_killed_at_any_call_that_writes_its_configuration_can_begin_again(tmp_path):
    from faults.disks import Hooked, hooked

    def begin(folder: Path) -> None:
        with ExitStack() as stack:
            open_folder(tiny(folder), stack)

    def die(name: str, arguments: tuple[Any, ...]) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    with hooked(Hooked()) as counted:
        begin(tmp_path / "counted")
    for number in range(1, len(counted.calls) + 1):
        folder = tmp_path / str(number)
        child = os.fork()
        if not child:
            with hooked(Hooked(number, die)):
                begin(folder)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == signal.SIGKILL
        begin(folder)
        assert [path.name for path in folder.iterdir()] == ["config.json"], counted.calls[number]


def test_another_configuration_is_refused_by_name(copied: Path) -> None:
    with pytest.raises(UserError) as refusal:
        train(tiny(copied, batch_size=9, recipe={"alpha": 0.7}, seed=4))
    message = str(refusal.value)
    for line in ("batch_size: 8 there, 9 here", "recipe.alpha: 0.5 there", "seed: 0 there"):
        assert line in message
    assert "image_size" not in message
    with pytest.raises(UserError, match=r"at decision 40.*decisions is 30"):
        train(tiny(copied, decisions=30))


def test_a_run_saved_without_its_replay_cannot_be_continued(copied, tmp_path, capsys):
    """Unless it stopped before its first decision: then it begins again."""
    stopped = checkpoint.load(train(tiny(tmp_path / "run", save_replay=False, time_limit="0s")))
    assert stopped and stopped.decision == 0 and stopped.state["replay"] is None
    config = tiny(tmp_path / "run", save_replay=False)
    run = train(config)
    kept, other = checkpoint.load(copied), checkpoint.load(run)
    assert kept and other and kept.segments and not other.segments
    assert all(torch.equal(kept.agent[name], other.agent[name]) for name in kept.agent)
    assert evaluate(run, modes=["train"], episodes=1)
    before = {p: p.read_bytes() for p in run.rglob("*") if p.is_file()}
    train(config)
    assert "is finished" in capsys.readouterr().out
    for continued in (True, False):
        with pytest.raises(UserError, match=r"at decision 40 .*without its replay"):
            train(dataclasses.replace(config, decisions=60, save_replay=continued))
    assert {p: p.read_bytes() for p in before} == before


def test_foreign_folders_are_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    for out in (tmp_path, tmp_path / "thesis.tex"):
        with pytest.raises(UserError, match=str(out)):
            train(tiny(out))
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_mistakes_in_the_users_environment_reach_the_user_and_leave_no_folder(tmp_path):
    for task, said in (("grey", "observation space"), ("nothing", "cannot be imported")):
        with pytest.raises(UserError, match=said):
            train(tiny(tmp_path / "run", f"toy:make_{task}"))
    assert not list(tmp_path.iterdir()), "a folder that looks like a run is left"
    run = train(tiny(tmp_path / "run", decisions=1, warmup=1))
    assert load_config(run).task == "toy:make"


def test_a_second_process_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    with files.locked(tmp_path, UserError("busy")), pytest.raises(UserError, match="training in"):
        train(tiny(tmp_path))


def assert_same_weights(one: Path, two: Path) -> None:
    ours, theirs = checkpoint.load(one), checkpoint.load(two)
    assert ours is not None and theirs is not None
    assert all(torch.equal(ours.agent[name], theirs.agent[name]) for name in theirs.agent)


def test_how_often_a_run_is_looked_at_and_saved_may_change(tmp_path, uninterrupted):
    """A next save or line in the far future, as the first part plans them, ends neither."""
    run = train(tiny(tmp_path / "run", decisions=23, save_every=10**6, log_every=10**6))
    train(tiny(run, eval_episodes=3, eval_every=5, log_every=5))
    evaluated = {line["decision"]: line for line in metrics(run) if line["kind"] == "eval"}
    assert list(evaluated) == [0, 15, 23, 25, 30, 35, 40]
    assert [line["episodes"] for line in evaluated.values()] == [2, 2, 2, 3, 3, 3, 3]
    logged = [line["decision"] for line in metrics(run) if line["kind"] == "train"]
    assert logged == [25, 30, 35, 40]
    assert [p.name for p in layout.checkpoints(run)] == ["000000030", "000000040"]
    assert_same_weights(run, uninterrupted)


def test_a_run_may_be_left_without_evaluations(uninterrupted, tmp_path, monkeypatch, capsys):
    first = train(tiny(tmp_path / "run", decisions=20))  # ends with an evaluation
    monkeypatch.setattr(Evaluators, "start", None)  # no process of theirs is needed
    monkeypatch.setattr(Evaluators, "play", None)
    run = train(tiny(first, eval_every=0))
    assert max(line["decision"] for line in metrics(run) if line["kind"] == "eval") == 20
    assert train(tiny(tmp_path / "none", eval_every=0)).exists()
    assert not [line for line in metrics(tmp_path / "none") if line["kind"] == "eval"]
    for folder in (run, tmp_path / "none"):
        assert_same_weights(folder, uninterrupted)
    capsys.readouterr()
    train(tiny(run, eval_every=0))
    assert "is finished" in capsys.readouterr().out, "a finished run is not begun again"


# The pictures of overlay --------------------------------------------------------------------------


def picture_folder(path: Path, shade: int) -> Path:
    path.mkdir()
    for number in range(3):
        Image.new("RGB", (40, 40), (shade, 40 * number, 200)).save(path / f"{number}.png")
    return path


def stored(run: Path) -> dict[str, Any]:
    return json.loads((run / "config.json").read_text())


def test_a_run_and_its_records_say_which_pictures_overlay_had_and_it_keeps_them(tmp_path):
    folder = picture_folder(tmp_path / "photos", 10)
    overlay = {"augment": "conv|overlay", "overlay_dir": str(folder)}
    run = train(tiny(tmp_path / "run", **overlay, decisions=14))
    pictures = stored(run)["pictures"]
    assert (pictures["source"], pictures["count"], pictures["of"]) == ("photos", 3, 3)
    assert len(pictures["sha256"]) == 64
    (record,) = evaluate(run, episodes=1)
    assert record["pictures"] == pictures
    assert "pictures" not in stored(train(tiny(tmp_path / "conv", decisions=14)))
    before = stored(run)
    Image.new("RGB", (40, 40), (11, 0, 200)).save(folder / "0.png")
    with pytest.raises(UserError, match=r"trained with 3 pictures of photos"):
        train(tiny(run, **overlay, decisions=16))
    assert stored(run)["pictures"] == before["pictures"]
    Image.new("RGB", (40, 40), (10, 0, 200)).save(folder / "0.png")
    train(tiny(run, **overlay, decisions=16))
    before["pictures"] |= {"side": 128, "sha256": "0" * 64}  # as another version held them
    (run / "config.json").write_text(json.dumps(before | {"decisions": 16}))
    with pytest.raises(UserError, match=r"at 128 px .* at 256 px"):
        train(tiny(run, **overlay, decisions=18))


# Exact resume ------------------------------------------------------------------------------------


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


def test_a_run_interrupted_everywhere_is_the_whole_run(uninterrupted, tmp_path, monkeypatch):
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
def test_a_run_that_continues_at_another_speed_says_so(tmp_path, monkeypatch, capsys):
    train_until(monkeypatch, tiny(tmp_path / "run", speed="eager"), lambda t: t.decision >= 20)
    train_until(monkeypatch, tiny(tmp_path / "run", speed="eager"), lambda t: t.decision >= 25)
    assert "by rounding" not in capsys.readouterr().out
    train(tiny(tmp_path / "run", speed="compiled"))
    assert "updates ran eager before and run compiled now" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "stops"),
    [
        # three environments, episodes that really end, and a ring that wraps
        ({"envs": 3, "task": "toy:make_terminating", "replay": 15, "episode_frames": 4}, (9, 24)),
        ({"task": "cartpole_swingup", "rendering": "fast", "episode_frames": 80, "decisions": 24,
          "eval_mode": "train", "eval_episodes": 1}, (17,)),  # in the middle of an episode
        # DQN's share of random actions, in an evaluation that was due when the run stopped
        ({"base": "dqn", "action_bins": 3, "eval_actions": "sampled", "dqn.epsilon_decisions": 30},
         (30,)),
    ],
    ids=["envs", "dm_control", "schedules"],
)  # fmt: skip
def test_other_runs_resume_exactly(changes, stops, tmp_path, monkeypatch):
    whole, config = train(tiny(tmp_path / "whole", **changes)), tiny(tmp_path / "parts", **changes)
    for stop in stops:
        train_until(monkeypatch, config, lambda trainer, stop=stop: trainer.decision >= stop)
    saved = checkpoint.load(config.folder)
    assert saved and stops[-1] <= saved.decision < config.decisions
    assert_same(whole, train(config))


@pytest.mark.parametrize("changes", [{}, {"envs": 3, "decisions": 31, "eval_every": 33}])
def test_an_extended_run_is_a_long_run(tmp_path: Path, changes: dict[str, Any]) -> None:
    short = {"decisions": 30} | changes
    run = train(tiny(tmp_path / "run", **short))
    train(tiny(run, **changes | {"decisions": 45}))
    assert_same(train(tiny(tmp_path / "long", **changes | {"decisions": 45})), run)


def test_a_killed_run_goes_back_to_its_checkpoint(uninterrupted, tmp_path, monkeypatch):
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


def test_a_damaged_checkpoint_is_skipped_and_two_are_named(uninterrupted, copied, capsys):
    weights = copied / "checkpoints" / "000000040" / "agent.safetensors"
    data = bytearray(weights.read_bytes())
    data[len(data) // 2] ^= 1
    weights.write_bytes(data)
    train(tiny(copied))
    captured = capsys.readouterr()
    assert "damaged checkpoint skipped" in captured.err and "000000040" in captured.err
    assert "resumed at decision 30" in captured.out
    assert_same(uninterrupted, copied)
    for weights in copied.glob("checkpoints/*/agent.safetensors"):
        weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(StorageError, match="000000030"):
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
def test_a_checkpoint_of_another_version_is_refused_by_name(copied, name, value):
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
