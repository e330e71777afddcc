"""The loop on the toy environment: what is logged, stored and learned."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_runs import tiny
from toy import LENGTH, Toy
from whole_runs import assert_same, metrics, outcome

import svea
from svea.agents.agent import Agent, Phase
from svea.core.errors import NumericsError, UserError
from svea.core.seeds import TRAINING, episode_seed
from svea.results.read import find_runs
from svea.runs import checkpoint, layout
from svea.runs.load import export
from svea.training import Trainer, train


def test_an_uninterrupted_run_logs_everything(uninterrupted: Path) -> None:
    lines = metrics(uninterrupted)
    evaluations = [line for line in lines if line["kind"] == "eval"]
    assert [line["decision"] for line in evaluations] == [0, 15, 30, 40]
    assert all(line["mode"] == "train" and len(line["returns"]) == 2 for line in evaluations)
    episodes = [line for line in lines if line["kind"] == "episode"]
    assert [(e["decision"], e["length"]) for e in episodes] == [(n, 10) for n in (10, 20, 30, 40)]
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


@pytest.mark.parametrize(("task", "ends"), [("toy:make", 0), ("toy:make_terminating", 6)])
def test_the_replay_knows_real_ends_from_time_limits(tmp_path: Path, task: str, ends: int) -> None:
    run = train(tiny(tmp_path / "run", task, decisions=24, episode_frames=4, eval_every=100))
    assert (outcome(run)["replay"]["discounts"] == 0).sum() == ends


def test_a_diverged_run_says_so_and_keeps_its_last_checkpoint(tmp_path, monkeypatch):
    config = tiny(tmp_path / "run", log_every=1000)
    make_update = Trainer.make_update

    def diverge(trainer: Trainer, decision: int) -> None:
        make_update(trainer, decision)
        if decision == 25:
            trainer.losses.add({"critic_loss": torch.tensor(torch.nan)})

    monkeypatch.setattr(Trainer, "make_update", diverge)
    with pytest.raises(NumericsError, match="critic_loss became"):
        train(config)
    saved = checkpoint.load(config.folder)
    assert saved is not None and saved.decision == 20


@pytest.mark.parametrize("warmup", [12, 13])
def test_every_update_that_the_warm_up_owes_trains_policy_and_target(tmp_path, monkeypatch, warmup):
    """Whether its number is even or odd."""
    seen: list[tuple[int, Phase]] = []
    schedule = Agent.schedule

    def recorded(agent: Agent, decision: int) -> Phase:
        seen.append((decision, schedule(agent, decision)))
        return seen[-1][1]

    monkeypatch.setattr(Agent, "schedule", recorded)
    train(tiny(tmp_path / "run", method="soda", crop=4, augment="conv", warmup=warmup, decisions=16,
               soda={"batch_size": 8}))  # fmt: skip
    owed, rest = seen[: warmup - 1], seen[warmup - 1 :]
    assert all(phase == Phase(True, True, True) for _, phase in owed)
    assert {decision for decision, _ in owed} == {12}  # the last even one
    assert [decision for decision, _ in rest] == [*range(warmup, 16)]


def test_the_first_evaluation_can_be_left_out_and_nothing_else_changes(tmp_path, uninterrupted):
    without = train(tiny(tmp_path, eval_first=False))
    played = [
        [(line["decision"], line["returns"]) for line in metrics(run) if line["kind"] == "eval"]
        for run in (uninterrupted, without)
    ]
    assert played[0][0][0] == 0 and played[0][1:] == played[1]


# Agents that a run keeps on its way: --export-at --------------------------------------------------


def test_an_agent_is_kept_when_the_run_passes_a_decision(uninterrupted, tmp_path, capsys):
    run = train(tiny(tmp_path / "run", export_at="25,40"))
    assert_same(uninterrupted, run)
    out = capsys.readouterr().out
    assert f"the agent is kept in {run}/exports/000000025" in out
    early, last = (svea.load_agent(layout.export_folder(run, m)) for m in (25, 40))
    assert (early.decision, last.decision) == (25, 40)
    seen = np.random.default_rng(0).integers(0, 255, (9, 16, 16), np.uint8)
    stopped = train(tiny(tmp_path / "stopped", decisions=25))
    assert np.array_equal(early.act(seen), svea.load_agent(stopped).act(seen))
    assert np.array_equal(last.act(seen), svea.load_agent(run).act(seen))
    assert not np.array_equal(early.act(seen), last.act(seen))


def test_environments_that_decide_at_once_may_pass_it_a_little_late(tmp_path: Path) -> None:
    run = train(tiny(tmp_path / "run", envs=3, export_at="20"))
    assert svea.load_agent(run / "exports" / "000000020").decision == 21


def test_a_resumed_run_keeps_what_is_still_to_come_and_says_what_is_not(tmp_path, capsys):
    run = train(tiny(tmp_path / "run", decisions=20))
    train(tiny(run, export_at="10,20,30"))
    assert sorted(path.name for path in (run / "exports").iterdir()) == ["000000020", "000000030"]
    assert "past decision 10, so export_at cannot keep its agent" in capsys.readouterr().out
    kept = svea.load_agent(run / "exports" / "000000030")
    assert kept.decision == 30


def test_kept_agents_are_not_runs_of_their_own(uninterrupted: Path, tmp_path: Path) -> None:
    """A report over a folder of runs would count them as further seeds."""
    run = tmp_path / "runs" / "a"
    shutil.copytree(uninterrupted, run)
    kept = layout.export_folder(run, 20)
    export(run, kept)
    assert find_runs([tmp_path / "runs"]) == [run]
    assert find_runs([kept]) == [kept] and find_runs([run / "exports"]) == [kept]


@pytest.mark.parametrize("given", ["soon", "41", "0"])
def test_decisions_that_the_run_does_not_make_are_refused(given: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="export_at"):
        tiny(tmp_path / "run", export_at=given)
