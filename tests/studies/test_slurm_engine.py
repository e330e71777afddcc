"""The engine of SLURM: submitit on this machine, and a real SLURM of one node where there is one.

The trial against a real SLURM, with Debian's packages slurm-wlm and munge, as root:

    SVEA_SLURM=1 scripts/slurm-single-node /tmp/slurm pytest -m slow tests/studies -k slurm
"""

import contextlib
import importlib.util
import os
import signal
import subprocess
from types import SimpleNamespace
from typing import Any

import pytest
from processes import wait_for
from tiny_studies import importable, process_of, result, starts, tiny_runs, tiny_study

from svea import cli
from svea.cli.sweep import EngineFlags, run_study
from svea.core import process
from svea.core.errors import UserError
from svea.studies import engines as local
from svea.studies import read_progress, read_states, slurm
from svea.studies.engines import Resources
from svea.studies.folder import read_journal

submitit_is_there = pytest.mark.skipif(
    not importlib.util.find_spec("submitit"), reason="submitit is not installed"
)
slurm_is_wanted = pytest.mark.skipif(
    not os.environ.get("SVEA_SLURM"),
    reason="a real SLURM is tried on request: set SVEA_SLURM=1 (see the file's first lines)",
)


@pytest.mark.parametrize(
    ("engine", "package", "words"),
    [
        ("ray", None, "pip install '.[ray]'"),
        ("slurm", None, "pip install '.[slurm]'"),
        ("slurm", object(), "no SLURM here"),
    ],
)
def test_what_is_missing_is_named_before_anything_starts(
    engine, package, words, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(local.importlib.util, "find_spec", lambda name: package)
    monkeypatch.setattr(slurm.shutil, "which", lambda name: None)
    flags = ["--tasks", "walker_walk", "--set", "decisions=9", "--out", str(tmp_path / "study")]
    assert cli.main(["sweep", "--on", engine, *flags]) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "study").exists()


@pytest.mark.parametrize(
    "resources", [Resources(time_limit="none"), Resources(time_limit="30s"), Resources(gpus=0.5)]
)
def test_what_slurm_cannot_do_is_refused(resources, monkeypatch):
    monkeypatch.setattr(local.importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(slurm.shutil, "which", lambda name: "/usr/bin/sbatch")
    with pytest.raises(UserError, match="allowed"):
        slurm.require(resources)


class Executor:
    """Stands for submitit's executor: numbers the jobs, runs none."""

    def __init__(self) -> None:
        self.jobs: list[Any] = []

    def batch(self) -> Any:
        return contextlib.nullcontext()

    def submit(self, job: Any) -> Any:
        self.jobs.append(job)
        return SimpleNamespace(job_id=f"7_{len(self.jobs) - 1}")


def test_only_runs_that_are_not_in_the_queue_are_submitted(tmp_path, monkeypatch, capsys):
    study, executor = tiny_study(tmp_path / "study"), Executor()
    (study.folder / "slurm").mkdir()
    monkeypatch.setattr(slurm, "make_executor", lambda study, resources, cluster: executor)
    monkeypatch.setattr(slurm, "require", lambda resources: None)
    assert run_study(study, EngineFlags(on="slurm")) == 0
    assert [job.run for job in executor.jobs] == list(study.runs)
    assert list(slurm.read_jobs(study.folder).values()) == ["7_0", "7_1", "7_2"]
    monkeypatch.setattr(slurm, "_queued", lambda: {"7_0", "7_2"})
    capsys.readouterr()
    assert run_study(study, EngineFlags(on="slurm")) == 0
    assert [job.run for job in executor.jobs[3:]] == [study.runs[1]]
    shown = capsys.readouterr().out
    assert "2 runs already in SLURM's queue\nsubmitted;" in shown


def test_a_queue_that_does_not_answer_is_named(monkeypatch):
    monkeypatch.setattr(process, "run", lambda command, seconds: None)  # it hung
    with pytest.raises(UserError, match="squeue took more than 60 s"):
        slurm._queued()


@pytest.mark.slow
@submitit_is_there
def test_jobs_of_submitit_end_like_an_undisturbed_study_also_after_a_preemption(
    tmp_path, monkeypatch
):
    import submitit

    importable(monkeypatch)
    runs = tiny_runs(seeds="0-1", decisions=300, save_every=50, eval_every=150, log_every=50)
    alone = tiny_study(tmp_path / "alone", *runs)
    local.run_study(alone, runs, Resources(jobs=2), lambda: None)
    study = tiny_study(tmp_path / "study", *runs)
    ids = slurm.run_study(study, runs, Resources(), lambda: None, cluster="local")
    assert slurm.read_jobs(study.folder) == dict(zip([r.name for r in runs], ids, strict=True))
    jobs = [submitit.local.local.LocalJob(study.folder / "slurm" / one, one) for one in ids]
    os.kill(process_of(study, runs[0])[1], signal.SIGUSR2)
    for job in jobs:
        wait_for(lambda job=job: job.done(), 300)
    wait_for(lambda: all(s.state == "done" for s in read_states(study)), 60)
    assert starts(study, runs[0]) == 2, "it saved, was started again, and went on"
    assert [result(study, run) for run in runs] == [result(alone, run) for run in runs]


@pytest.mark.slow
@submitit_is_there
@slurm_is_wanted
def test_a_real_slurm_requeues_a_preempted_run_which_saved_in_time(tmp_path, monkeypatch):
    importable(monkeypatch)
    runs = tiny_runs(seeds="0-1", decisions=600, save_every=300, eval_every=300, log_every=50)
    alone = tiny_study(tmp_path / "alone", *runs)
    local.run_study(alone, runs, Resources(jobs=2), lambda: None)
    study = tiny_study(tmp_path / "study", *runs)
    low = Resources(cpus=1, time_limit="10m", slurm=("partition=low",))
    slurm.require(low)
    slurm.run_study(study, runs, low, lambda: None)
    assert slurm.run_study(study, runs, low, lambda: None) == [], "they are in the queue already"
    wait_for(lambda: all(s.progress.decision > 60 for s in read_states(study)), 180)
    preempt = ["sbatch", "--partition=high", "--exclusive", "--wrap", "sleep 5", "-o", "/dev/null"]
    subprocess.run(preempt, check=True, cwd=tmp_path, stdout=subprocess.DEVNULL)
    wait_for(lambda: all(s.state == "queued" for s in read_states(study)), 120)
    stopped_at = [s.progress.decision for s in read_states(study)]
    assert all(0 < decision < 300 for decision in stopped_at), "between two regular checkpoints"
    # SLURM lets a requeued job wait for two minutes before it starts it again.
    saved = [read_progress(study.folder, run).saved for run in runs]
    assert all(decision >= 60 for decision in saved), "saved by the warning, not by the clock"
    wait_for(lambda: all(s.progress.done for s in read_states(study)), 500)
    assert [result(study, run) for run in runs] == [result(alone, run) for run in runs]
    assert all(starts(study, run) == 2 for run in runs)


@pytest.mark.slow
@submitit_is_there
@slurm_is_wanted
def test_cancel_takes_waiting_jobs_out_of_the_queue_and_lets_running_ones_save(
    tmp_path, monkeypatch
):
    importable(monkeypatch)
    study = tiny_study(tmp_path / "study", *tiny_runs(seeds="0-3", decisions=100_000))
    low = Resources(cpus=2, time_limit="10m", slurm=("partition=low",))
    slurm.run_study(study, study.runs, low, lambda: None)
    wait_for(lambda: read_states(study)[0].progress.decision > 20, 180)
    assert cli.main(["sweep", "cancel", str(study.folder)]) == 0
    wait_for(lambda: not slurm._queued(), 120)
    states = read_states(study)
    assert all(s.state == "queued" for s in states)
    assert sum(s.progress.decision > 0 for s in states) == 1
    assert read_journal(study.folder / "journal" / f"{states[0].run.name}.jsonl")[-1]["code"] == 143
