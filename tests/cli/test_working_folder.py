"""A working folder in which anything may lie: its modules are imported only when a user names one.

`svea.core.process` starts every Python child.
"""

import asyncio
import functools
import importlib
import os
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cloudpickle
import pytest
from tiny_runs import TINY

from svea.cli import doctor, main
from svea.config import configure, flat
from svea.config.presets import as_flags
from svea.core import process
from svea.envs.workers.pool import Workers
from svea.studies import Study, slurm, supervise
from svea.studies.engines import Resources
from svea.studies.ray import as_task

SRC = Path(__file__).parents[2] / "src/svea"
SHADOWED = ("json", "random", "typing", "socket", "numpy", "torch", "gymnasium", "toy")


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """A folder whose modules have the names of others, and write a file when they are executed."""
    folder = tmp_path_factory.mktemp("planted")
    for name in SHADOWED:
        marker = f"open({str(folder / 'executed')!r}, 'a').write({name!r} + chr(10))\n"
        (folder / f"{name}.py").write_text(marker + "raise SystemExit(77)\n")
    return folder


@pytest.fixture
def within(planted, monkeypatch):
    """Work in that folder; afterwards nothing of it has been executed."""
    monkeypatch.chdir(planted)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    yield planted
    executed = planted / "executed"
    assert not executed.exists(), executed.read_text()


def flags(**changes: Any) -> list[str]:
    return as_flags(flat(TINY | changes))


@pytest.mark.parametrize("paths", [None, ""])
def test_the_command_itself_imports_nothing_from_it(within, paths):
    own = [str(SRC.parent)] if paths is None else [paths, str(SRC.parent)]
    done = subprocess.run(
        [sys.executable, "-m", "svea", "methods"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(reversed(own))},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_train_and_eval(within):
    assert main(["train", "toy:make", *flags(), "--out", "run"]) == 0
    assert main(["eval", "run", "--task", "toy:make", "--modes", "train", "--episodes", "1"]) == 0


@pytest.mark.slow
def test_the_other_verbs_that_start_processes(within, tmp_path):
    options = flat(TINY | {"decisions": 13, "eval_every": 0})
    small = ["--set", *(f"{k}={v}" for k, v in options.items() if k != "method")]
    grid = ["--tasks", "walker_walk", "--methods", "drq", "--seeds", "0", "--modes", "train"]
    study = [*grid, "--out", str(tmp_path / "study"), "--jobs", "1", "--episodes", "1", *small]
    assert main(["sweep", *study]) == 0
    (run,) = (tmp_path / "study/runs").iterdir()
    assert main(["watch", str(run), "--modes", "train", "-o", str(tmp_path / "film.mp4")]) == 0
    assert main(["gallery", "environments", "--modes", "train", "--tasks", "walker_walk",
                 "-o", str(tmp_path / "sheet.png")]) == 0  # fmt: skip
    assert main(["bench", "train", "--preset", "quick", "--seconds", "0.1"]) == 0


def test_the_processes_of_a_study(within, tmp_path):
    call = functools.partial(importlib.import_module, "svea.studies.supervise")
    work = functools.partial(isinstance, call, str)
    assert supervise.call_in_process(work, tmp_path / "log", lambda: False) == 0


def test_a_trial_of_drawing(within):
    doctor.measure_gl()


def test_an_agent_of_the_playground(within):
    session = pytest.importorskip("svea.play.session")
    setting = pytest.importorskip("svea.play.setting")

    async def start_and_end() -> None:
        agent = session.AgentProcess(0, setting.AgentSlot(task="walker_walk"), 1)
        await agent.start(setting.DEFAULT)
        await agent.close()

    asyncio.run(start_and_end())


def test_a_task_of_ray_puts_the_folder_last_before_it_imports_anything(within):
    call = functools.partial(importlib.import_module, "svea.studies.supervise")
    task = cloudpickle.dumps(as_task(str(within)))
    code = (
        "import cloudpickle, pickle, sys; path = [*sys.path]; sys.path.insert(0, sys.argv[1])\n"
        f"pickle.loads({task!r})({cloudpickle.dumps(call)!r})\n"
        "assert sys.path == [*path, sys.argv[1]]"
    )
    command = [sys.executable, "-P", "-c", code, str(within)]
    subprocess.run(command, env=process.environment(), check=True)


def test_a_job_of_slurm_begins_without_the_folder(within, monkeypatch):
    given: dict[str, Any] = {}
    executor = SimpleNamespace(update_parameters=given.update)
    submitit = SimpleNamespace(AutoExecutor=lambda **options: executor)
    monkeypatch.setitem(sys.modules, "submitit", submitit)
    slurm.make_executor(Study(within / "study", ()), Resources())
    code = "import sys; assert sys.flags.safe_path; import svea.studies.supervise"
    script = "; ".join([*given["slurm_setup"], shlex.join([sys.executable, "-c", code])])
    subprocess.run(["sh", "-ec", script], check=True)


def test_children_find_what_their_parent_finds_and_the_folder_last(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for entry in ("", ".", str(tmp_path)):
        monkeypatch.setattr(sys, "path", [entry, "/elsewhere", *sys.path])
        path = process.environment()["PYTHONPATH"].split(os.pathsep)
        assert "" not in path and os.path.samefile(path[-1], tmp_path)
        assert path[0] == "/elsewhere"
        monkeypatch.undo()
        monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["", "/set/later"]))
    path = process.environment()["PYTHONPATH"].split(os.pathsep)
    assert "/set/later" in path and "" not in path and str(tmp_path) not in path


def test_a_module_of_ones_own_works_from_the_folder(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(
        "from toy import make\nfrom svea.methods import Method\nown = Method('drq')\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert configure("mine:make", method="mine:own").method == "mine:own"  # in this process
    with Workers([{"task": "mine:make"}]) as workers:  # and in a child
        workers.reset([0])
        assert len(workers.observations) == 1
    assert os.path.samefile(sys.path[-1], tmp_path)
    sys.modules.pop("mine")


def test_python_children_are_started_in_one_place():
    for path in SRC.rglob("*.py"):
        if path.name not in ("process.py", "doctor.py"):  # which prints where Python is
            assert "sys.executable" not in path.read_text(), path
