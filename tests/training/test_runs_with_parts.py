"""Runs of environments that show two pictures and a vector: begun, broken off, continued, kept."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_runs import tiny
from whole_runs import assert_same, metrics, train_until

import svea
from svea.core import process
from svea.core.errors import NumericsError, UserError
from svea.core.seeds import TRAINING, episode_seed
from svea.evaluation.requests import evaluate
from svea.runs import checkpoint
from svea.runs.load import export, load_agent, read_config
from svea.training import Trainer, train


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tiny(tmp_path_factory.mktemp("parts") / "whole", "toy:make_parted"))


@pytest.mark.parametrize("changes", [{}, {"envs": 3, "decisions": 42}])
@pytest.mark.parametrize("task", ["make_parted", "make_two_pictures", "make_with_state"])
def test_an_interrupted_run_is_the_uninterrupted_one(task, changes, tmp_path, monkeypatch):
    unbroken = train(tiny(tmp_path / "whole", f"toy:{task}", **changes))
    config = tiny(tmp_path / "stopped", f"toy:{task}", **changes)
    for stop in (6, 16, 29):
        train_until(monkeypatch, config, lambda trainer, stop=stop: trainer.decision >= stop)
    assert_same(unbroken, train(config))


def killed(out: str) -> None:
    """A run in a process that is killed between two checkpoints, right after its 28th decision."""
    real = Trainer.store

    def store(self: Trainer, *given: Any) -> None:
        real(self, *given)
        if self.decision >= 28:
            os.kill(os.getpid(), signal.SIGKILL)

    Trainer.store = store  # type: ignore[method-assign]
    train(tiny(Path(out), "toy:make_parted"))


def test_a_killed_run_goes_back_to_its_checkpoint(whole, tmp_path):
    child = process.start("test_runs_with_parts:killed", str(tmp_path / "run"))
    assert child.wait() == -signal.SIGKILL
    saved = checkpoint.load(tmp_path / "run")
    assert saved is not None and saved.decision == 20
    assert "vector.mean" in saved.agent
    assert_same(whole, train(tiny(tmp_path / "run", "toy:make_parted")))


def test_the_statistics_are_those_of_what_was_sampled(whole):
    """The third number never changes, the second is ten times the first, and 1000 away."""
    agent = load_agent(whole, trust=True)
    assert agent.scale is not None
    mean, deviation = agent.scale.mean, agent.scale.variance.sqrt()
    assert mean[2] == 7 and deviation[2] == 0
    torch.testing.assert_close(mean[1], 1000 + 10 * mean[0], rtol=1e-5, atol=1e-2)
    torch.testing.assert_close(deviation[1], 10 * deviation[0], rtol=1e-2, atol=0)


@pytest.mark.parametrize("small", [False, True])
def test_an_export_acts_as_the_run_does(whole, tmp_path, small):
    made = export(whole, tmp_path / "export", small=small)
    env = svea.make_env("toy:make_parted", image_size=16)
    seen, _ = env.reset(seed=3)
    actions = [load_agent(one, trust=True).act(seen) for one in (whole, made)]
    np.testing.assert_allclose(*actions, atol=0.05 if small else 0)
    records = [evaluate(one, ["train"], 2, trust=True) for one in (whole, made)]
    assert len(records[0]) == 2
    if not small:
        assert [r["return"] for r in records[0]] == [r["return"] for r in records[1]]


def test_an_agent_is_not_tested_where_it_sees_something_else(whole):
    with pytest.raises(UserError, match=r"is one picture.*learned with pictures 'front' and"):
        evaluate(whole, ["train"], 1, task="toy:make", trust=True)


def test_a_run_whose_environment_shows_other_parts_is_not_continued(tmp_path, monkeypatch):
    import toy

    monkeypatch.setattr(toy, "make_changing", toy.make_with_state, raising=False)
    config = tiny(tmp_path / "run", "toy:make_with_state", decisions=20)
    train(config)
    text = (config.folder / "config.json").read_text()
    (config.folder / "config.json").write_text(text.replace('"state"', '"pose"'))
    with pytest.raises(UserError, match=r"vector 'pose'.*vector 'state'"):
        train(tiny(config.folder, "toy:make_with_state", decisions=30))


# What goes wrong ------------------------------------------------------------------------------


def spoil(monkeypatch: pytest.MonkeyPatch, episode: int | None, clock: int, bad: str) -> None:
    seed = None if episode is None else episode_seed(0, TRAINING, 0, episode)
    monkeypatch.setenv("SVEA_FAULTS", json.dumps([seed, clock, bad]))


@pytest.mark.parametrize("bad", ["nan", "inf", "longer"])
def test_a_bad_vector_at_the_first_reset_is_refused_before_training(bad, tmp_path, monkeypatch):
    spoil(monkeypatch, None, 0, bad)
    with pytest.raises(UserError, match="'state'"):
        train(tiny(tmp_path / "run", "toy:make_parted_spoiled", eval_first=False))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("bad", "error"), [("nan", NumericsError), ("-inf", NumericsError), ("longer", UserError)]
)
def test_a_bad_vector_later_ends_the_run_which_is_saved(bad, error, tmp_path, monkeypatch):
    """Where it came is named, nothing before is lost, and what was bad is not stored."""
    spoil(monkeypatch, 2, 7, bad)
    config = tiny(tmp_path / "run", "toy:make_parted_spoiled", eval_every=0)
    where = "environment 0, episode 3 .*, step 7: "
    with pytest.raises(error, match=rf"{where}.*'state'.*saved at decision 26"):
        train(config)
    saved = checkpoint.load(config.folder)
    assert saved is not None and saved.decision == 26
    assert all(tensor.isfinite().all() for tensor in saved.agent.values())
    assert [line["decision"] for line in metrics(config.folder) if line["kind"] == "episode"]
    monkeypatch.setenv("SVEA_FAULTS", json.dumps([0, 99, "nan"]))
    train(config)
    assert checkpoint.load(config.folder).decision == 40
    assert read_config(config.folder)["parts"]["vector"] == "state"


# Looked at ------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", [
    "eval {run} --modes train picture_colors --episodes 1",
    "watch {run} --modes train --seconds 1 --out {out}.mp4",
    "analyze saliency {run} --modes train --samples 2 --guided --out {out}.png",
    "analyze q-variance {run} --transitions 8 --draws 2",
    "analyze q-gap {run} --augment conv --transitions 8 --draws 2",
    "report {run}",
])  # fmt: skip
def test_every_verb_that_looks_at_a_run_takes_it(whole, tmp_path, verb):
    from svea.cli import main

    words = verb.format(run=whole, out=tmp_path / "out").split()
    assert main([*words, "--trust"] if words[0] != "report" else words) == 0
    if words[-1].startswith(str(tmp_path)):
        assert Path(words[-1]).stat().st_size > 1000


@pytest.mark.parametrize("overlay", ["none", "saliency"])
def test_the_playground_plays_it_and_shows_the_first_picture(whole, overlay):
    from svea.core import importing
    from svea.play.player import Player
    from svea.play.setting import AgentSlot, read_setting

    importing.trust("toy")
    setting = read_setting({"overlay": overlay}, [])
    player = Player(AgentSlot(run=str(whole)), setting)
    player.begin(setting)
    player.decide()
    frames, *over = player.seen()
    shown = np.frombuffer(frames, np.uint8).reshape(3, 16, 16, 3)
    assert player.episode is not None
    front = player.episode.observation["pictures"][:9].reshape(3, 3, 16, 16)
    np.testing.assert_array_equal(shown, front.transpose(0, 2, 3, 1))
    assert [len(each) for each in over] == ([16 * 16 * 3] if overlay == "saliency" else [])
