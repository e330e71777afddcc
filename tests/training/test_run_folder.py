"""Which folders a run may be in."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from tiny_runs import tiny
from whole_runs import metrics

from svea.core import files
from svea.core.errors import UserError
from svea.evaluation.requests import evaluate
from svea.runs import checkpoint
from svea.runs.load import load_config
from svea.training import train
from svea.training.evaluators import Evaluators
from svea.training.resume import open_folder

torch.set_num_threads(1)


def test_a_finished_run_is_left_alone(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {p: p.read_bytes() for p in copied.rglob("*.safetensors")}
    train(tiny(copied))
    assert "is finished (40 decisions); a larger --decisions extends it" in capsys.readouterr().out
    assert {p: p.read_bytes() for p in copied.rglob("*.safetensors")} == before


@pytest.mark.skipif(sys.platform != "linux", reason="the kit of faults reads /proc")
def test_a_run_killed_at_any_call_that_writes_its_configuration_can_begin_again(
    tmp_path: Path,
) -> None:
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
    (tmp_path / "counted" / "config.json").rename(tmp_path / "counted" / "thesis.tex")
    with pytest.raises(UserError, match="not empty and not a run"):
        begin(tmp_path / "counted")


def test_another_configuration_is_refused_by_name(copied: Path) -> None:
    with pytest.raises(UserError) as refusal:
        train(tiny(copied, batch_size=9, recipe={"alpha": 0.7}, seed=4))
    message = str(refusal.value)
    for line in ("batch_size: 8 there, 9 here", "recipe.alpha: 0.5 there", "seed: 0 there"):
        assert line in message
    assert "image_size" not in message


def test_a_run_saved_without_its_replay_learns_the_same_but_cannot_be_continued(
    copied: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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


def test_a_run_without_its_replay_that_stops_before_its_first_decision_begins_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tiny(tmp_path / "run", save_replay=False, time_limit="0s")
    saved = checkpoint.load(train(config))
    assert saved and saved.decision == 0 and saved.state["replay"] is None
    train(dataclasses.replace(config, time_limit="none"))
    assert "done: 40 decisions" in capsys.readouterr().out


def test_fewer_decisions_than_done_are_refused(copied: Path) -> None:
    with pytest.raises(UserError, match=r"decisions is 30.*already at 40"):
        train(tiny(copied, decisions=30))


def test_foreign_folders_are_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    for out in (tmp_path, tmp_path / "thesis.tex"):
        with pytest.raises(UserError, match=str(out)):
            train(tiny(out))
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_run_that_never_saved_may_be_started_again_with_other_options(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be imported"):
        train(tiny(tmp_path / "run", "toy:make_nothing"))
    run = train(tiny(tmp_path / "run", decisions=1, warmup=1))
    assert load_config(run).task == "toy:make"


def test_mistakes_in_the_users_environment_reach_the_user(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="observation space"):
        train(tiny(tmp_path / "grey", "toy:make_grey"))
    with pytest.raises(UserError, match="cannot be imported"):
        train(tiny(tmp_path / "missing", "toy:make_nothing"))
    assert not list(tmp_path.iterdir()), "a folder that looks like a run is left"


def test_a_second_process_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    with files.locked(tmp_path, UserError("busy")), pytest.raises(UserError, match="training in"):
        train(tiny(tmp_path))


def assert_same_weights(one: Path, two: Path) -> None:
    ours, theirs = checkpoint.load(one), checkpoint.load(two)
    assert ours is not None and theirs is not None
    assert all(torch.equal(ours.agent[name], theirs.agent[name]) for name in theirs.agent)


def test_how_often_a_run_is_looked_at_may_change(tmp_path: Path, uninterrupted: Path) -> None:
    run = train(tiny(tmp_path / "run", decisions=20))
    train(tiny(run, eval_episodes=3, eval_every=5, log_every=2))
    evaluated = {line["decision"]: line for line in metrics(run) if line["kind"] == "eval"}
    assert list(evaluated) == [0, 15, 20, 25, 30, 35, 40]
    assert [line["episodes"] for line in evaluated.values()] == [2, 2, 2, 3, 3, 3, 3]
    assert_same_weights(run, uninterrupted)


def test_a_run_may_be_left_without_evaluations(
    uninterrupted: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
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


def test_a_run_and_its_records_say_which_pictures_overlay_had(tmp_path: Path) -> None:
    folder = picture_folder(tmp_path / "photos", 10)
    overlay = {"augment": "conv|overlay", "overlay_dir": str(folder), "decisions": 14}
    run = train(tiny(tmp_path / "run", **overlay))
    pictures = stored(run)["pictures"]
    assert (pictures["source"], pictures["count"], pictures["of"]) == ("photos", 3, 3)
    assert len(pictures["sha256"]) == 64
    (record,) = evaluate(run, episodes=1)
    assert record["pictures"] == pictures
    assert "pictures" not in stored(train(tiny(tmp_path / "conv", decisions=14)))


def test_a_run_does_not_continue_with_other_pictures(tmp_path: Path) -> None:
    folder = picture_folder(tmp_path / "photos", 10)
    overlay = {"augment": "overlay", "overlay_dir": str(folder)}
    run = train(tiny(tmp_path / "run", **overlay, decisions=14))
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
