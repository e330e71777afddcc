"""Agents that a run keeps on its way: --export-at."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_runs import tiny
from whole_runs import assert_same

import svea
from svea.core.errors import UserError
from svea.results.read import find_runs
from svea.runs import layout
from svea.training import train

torch.set_num_threads(1)


def test_an_agent_is_kept_when_the_run_passes_a_decision(
    uninterrupted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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


def test_a_resumed_run_keeps_what_is_still_to_come_and_says_what_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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
    kept.mkdir(parents=True)
    shutil.copy(run / "config.json", kept)
    assert find_runs([tmp_path / "runs"]) == [run]
    assert find_runs([kept]) == [kept] and find_runs([run / "exports"]) == [kept]


@pytest.mark.parametrize(
    ("given", "words"),
    [("soon", "export_at is 'soon'"), ("41", "makes 40 decisions"), ("0", "allowed: 1 to 40")],
)
def test_decisions_that_the_run_does_not_make_are_refused(
    given: str, words: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=words):
        tiny(tmp_path / "run", export_at=given)
