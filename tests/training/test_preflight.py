"""What is checked before the first decision."""

import shutil

import pytest
import torch
from tiny_runs import tiny

from svea.config import configure
from svea.core import files, machine
from svea.core.errors import StorageError, UserError
from svea.training import preflight, train


def test_a_run_of_days_on_a_cpu_is_announced_before_it_starts(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(preflight, "update_seconds", lambda config, device: 5.0)
    cpu, paper = torch.device("cpu"), configure("walker_walk")
    assert "about 28.9 days" in preflight.slow_warning(paper, cpu, 500_000)
    assert preflight.slow_warning(paper, cpu, 1_000) == "", "an hour and a half is not worth it"
    assert preflight.slow_warning(paper, torch.device("cuda"), 500_000) == ""
    train(tiny(tmp_path / "run", decisions=10_000, time_limit="0s"))
    out = capsys.readouterr().out
    assert 0 < out.index("warning: about 13.9 h") < out.index("time limit")


def test_the_time_of_an_update_comes_from_its_passes_through_the_trunk(monkeypatch):
    now = [0.0]

    def clock() -> float:
        now[0] += 1.0
        return now[0]

    monkeypatch.setattr(preflight.time, "perf_counter", clock)
    before = torch.get_rng_state()
    drawn = {
        method: preflight.update_seconds(
            configure("walker_walk", preset="quick", method=method, batch_size=128),
            torch.device("cpu"),
        )
        for method in ("svea", "drq")
    }
    assert drawn["svea"] == pytest.approx(4 * (2 + 2 / 3)), "128 pictures are four times 32"
    assert drawn["drq"] == pytest.approx(4 * (1 + 2 / 3))
    assert torch.equal(torch.get_rng_state(), before), "nothing is drawn from the global generator"


def test_a_run_without_room_in_memory_or_on_disk_is_refused(tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(machine, "available_bytes", lambda: 10_000)
        with pytest.raises(UserError, match="replay buffer of 40 decisions"):
            train(tiny(tmp_path / "run"))
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(files.shutil, "disk_usage", lambda path: usage._replace(free=50_000))
    with pytest.raises(StorageError, match="50000 bytes"):
        train(tiny(tmp_path / "run", decisions=2000))


def test_the_disk_forecast_covers_what_a_run_writes(tmp_path, monkeypatch):
    asked: list[int] = []
    monkeypatch.setattr(files, "require_space", lambda path, needed, purpose: asked.append(needed))
    run = train(tiny(tmp_path / "run"))
    parts = (run / "checkpoints", run / "replay", run / "metrics.jsonl")
    written = sum(files.size_of(p) if p.is_dir() else p.stat().st_size for p in parts)
    assert written <= asked[0] < 4 * written, "three checkpoints may stand there for a moment"
    on_disk = sum(512 * path.stat().st_blocks for path in run.rglob("*"))
    assert on_disk <= files.at_most(asked[0]), "all files and folders, in whole blocks"
    train(tiny(run, decisions=45))
    assert asked[1] < asked[0], "what stands there already is not needed again"
