"""The engine of one machine: room for runs, and real studies with faults in them."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from processes import wait_for
from tiny_studies import importable, process_of, result, tiny_runs, tiny_study

from svea import cli
from svea.config import configure
from svea.core.errors import UserError
from svea.studies import engines as local
from svea.studies import read_states
from svea.studies.engines import Resources
from svea.studies.folder import is_cancelled, read_journal, read_state
from svea.studies.supervise import groups

GB = 10**9


@pytest.fixture
def machine(monkeypatch):
    """A machine with as many cores, bytes and GPUs as a test wants."""

    def build(cores: int, memory: int, gpus: dict[str, int] | None = None) -> None:
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
        monkeypatch.setattr(local, "usable_cores", lambda: cores)
        monkeypatch.setattr(local, "available_bytes", lambda: memory)
        monkeypatch.setattr(local, "nvidia_gpus", lambda: list((gpus or {}).items()))

    return build


def test_cores_and_memory_bound_the_runs_of_a_machine_without_gpu(machine):
    config = configure("walker_walk", decisions=1000)
    machine(cores=16, memory=1000 * GB)
    slots = local.find_slots([config], Resources())
    assert len(slots) == 8, "a learner and an environment each"
    assert {slot["OMP_NUM_THREADS"] for slot in slots} == {"2"}
    machine(cores=16, memory=5 * GB)
    assert len(local.find_slots([config], Resources())) == 2  # 4.5 GB usable, 2 GB each
    machine(cores=1, memory=GB // 10)
    assert len(local.find_slots([config], Resources())) == 1
    assert len(local.find_slots([config], Resources(jobs=5))) == 5


def test_several_runs_share_a_gpu_when_their_memory_fits(machine):
    config = configure("walker_walk")  # a replay of 10.7 GB, and 4 GB besides
    machine(cores=64, memory=1000 * GB, gpus={"0": 24 * GB, "1": 80 * GB})
    slots = local.find_slots([config], Resources())
    assert sorted(slot[local.GPU] for slot in slots) == ["0"] + ["1"] * 4
    assert {slot[local.GPU] for slot in slots[:2]} == {"0", "1"}
    thirds = local.find_slots([config], Resources(gpus=1 / 3))
    assert [sum(slot[local.GPU] == g for slot in thirds) for g in "01"] == [3, 3]
    machine(cores=4, memory=1000 * GB, gpus={"0": 80 * GB})
    assert len(local.find_slots([config], Resources())) == 2, "cores bound it too"
    on_cpu = configure("walker_walk", device="cpu")
    for one, resources in ((config, Resources(gpus=0)), (on_cpu, Resources())):
        assert local.GPU not in local.find_slots([one], resources)[0]
    machine(cores=64, memory=1000 * GB, gpus={"0": 80 * GB})
    for shared, together in ((4, Resources()), (2, Resources(together=2))):
        assert len(local.find_slots([config], together)) == shared
    assert len(local.find_slots([config], Resources(gpus=0.25, together=2))) == 2
    assert groups(range(5), 2) == [range(2), range(2, 4), range(4, 5)]
    with pytest.raises(UserError, match="together is 2"):
        Resources(together=2).check("ray")


@pytest.mark.parametrize(
    ("gpus", "cores", "jobs", "at_once"),
    [
        ({"0": 80 * GB}, 16, 1, [12, 12]),
        ({"0": 80 * GB}, 16, 2, [6, 6]),  # which share the cores
        ({"0": 80 * GB}, 2, 1, [1, 2]),  # as many as are in the group
        ({}, 16, 1, [1, 1]),
    ],
)
def test_agents_of_a_group_are_evaluated_at_once_where_a_gpu_computes(
    gpus, cores, jobs, at_once, machine, tmp_path, monkeypatch
):
    machine(cores=cores, memory=1000 * GB, gpus=gpus)
    asked: list[tuple[int, int]] = []

    def supervise(study: Path, runs: Any, *_: Any, at_once: int, **__: Any) -> None:
        asked.append((len(runs), at_once))

    monkeypatch.setattr(local, "supervise", supervise)
    study = tiny_study(tmp_path, *tiny_runs(seeds="0-2", device="auto"))
    local.run_study(study, study.runs, Resources(together=2, jobs=jobs), lambda: None)
    assert sorted(asked) == [(1, at_once[0]), (2, at_once[1])]


@pytest.mark.slow
def test_a_study_with_one_run_killed_and_one_failing(tmp_path, monkeypatch):
    """The killed one resumes and ends like an undisturbed one; the failing one uses its budget."""
    importable(monkeypatch)
    good, broken = tiny_runs(seeds="0-1"), tiny_runs("toy:make_broken", seeds="0")
    alone = tiny_study(tmp_path / "alone", *good)
    local.run_study(alone, alone.runs, Resources(jobs=2), lambda: None)
    study = tiny_study(tmp_path / "study", *good, *broken, attempts=2)
    killer = threading.Thread(target=lambda: os.kill(process_of(study, good[0])[0], signal.SIGKILL))
    killer.start()
    local.run_study(study, study.runs, Resources(jobs=2), lambda: None)
    killer.join()
    states = {state.run.name: state for state in read_states(study)}
    assert [states[run.name].state for run in study.runs] == ["done", "done", "failed"]
    journal = read_journal(study.folder / "journal" / f"{good[0].name}.jsonl")
    ends = [entry for entry in journal if entry["event"] == "end"]
    assert [end["outcome"] for end in ends] == ["failed", "done"]
    assert ends[0]["reason"] == "ended by SIGKILL"
    assert [result(study, run) for run in good] == [result(alone, run) for run in good]
    failed = states[broken[0].name]
    assert failed.failures == 2 and "exit code 5" in failed.reason
    log = (study.folder / "journal" / f"{broken[0].name}.log").read_text()
    assert "the toy broke" in log


@pytest.mark.slow
def test_the_command_again_goes_on_after_the_driver_was_killed_or_interrupted(
    tmp_path, monkeypatch
):
    importable(monkeypatch)
    study = tiny_study(tmp_path / "study", *tiny_runs(seeds="0", decisions=400, save_every=100))
    (run,) = study.runs
    axes = ("task", "method", "seed")
    flags = [f"{name}={value}" for name, value in run.values.items() if name not in axes]
    words = ["--tasks", "toy:make", "--out", str(study.folder), "--jobs", "1", "--set", *flags]
    command = [sys.executable, "-m", "svea", "sweep", *words]
    for number, code in ((signal.SIGKILL, -9), (signal.SIGTERM, 130), (signal.SIGINT, 130)):
        driver = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        trainer, _ = process_of(study, run)
        driver.send_signal(number)
        assert driver.wait(120) == code
        entry = Path(f"/proc/{trainer}")
        wait_for(lambda entry=entry: not entry.exists(), 60)
        assert read_state(study.folder, run).state == "queued"
    before = read_state(study.folder, run).progress.decision
    assert before > 0, "it saved before it stopped"
    assert subprocess.run(command, check=False, timeout=300).returncode == 0
    assert read_state(study.folder, run).state == "done"
    again = subprocess.run(command, check=False, timeout=300, capture_output=True, text=True)
    assert "1 done" in again.stdout and again.returncode == 0


def test_ctrl_c_stops_what_this_driver_works_on_and_no_other_drivers_runs(tmp_path, monkeypatch):
    study = tiny_study(tmp_path / "study", *tiny_runs(seeds="0"))
    begun, stopped = threading.Event(), threading.Event()

    def supervise(*_: Any, must_stop: Callable[[], bool], **__: Any) -> None:
        begun.set()
        while not must_stop():
            time.sleep(0.01)
        stopped.set()

    def ctrl_c() -> None:
        assert begun.wait(30)
        raise KeyboardInterrupt

    monkeypatch.setattr(local, "supervise", supervise)
    with pytest.raises(KeyboardInterrupt):
        local.run_study(study, study.runs, Resources(jobs=1), ctrl_c)
    assert stopped.is_set() and not is_cancelled(study.folder)


@pytest.mark.slow
def test_cancel_from_elsewhere(tmp_path, monkeypatch):
    importable(monkeypatch)
    study = tiny_study(tmp_path / "study", *tiny_runs(seeds="0-1", decisions=100_000))
    work = threading.Thread(
        target=local.run_study, args=(study, study.runs, Resources(jobs=1), lambda: None)
    )
    work.start()
    process_of(study, study.runs[0])
    assert cli.main(["sweep", "cancel", str(study.folder)]) == 0
    work.join(120)
    assert not work.is_alive()
    first, second = read_states(study)
    assert (first.state, second.state) == ("queued", "queued") and first.progress.decision > 0
    last = read_journal(study.folder / "journal" / f"{first.run.name}.jsonl")[-1]
    assert last["outcome"] == "stopped" and last["code"] == 143
    assert not (study.folder / "runs" / second.run.name).exists()
