"""`svea play`: mistakes are named before anything starts."""

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="needs the extra play")

from svea.cli import main
from svea.runs import zoo


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "1 to 4"),
        (["zoo:walker_walk-svea"] * 5, "1 to 4"),
        (["--random"], "needs a task"),
        (["--random", "--task", "walker_wlak"], "walker_walk"),
        (["zoo:no_such"], "no_such"),
        (["no/such/run"], "config.json"),
        (["zoo:walker_walk-svea", "--port", "70000"], "65535"),
        (["zoo:walker_walk-svea", "--pages", "0"], "1 to 16"),
        (["zoo:walker_walk-svea", "--envs", "-1"], "envs is -1"),
        (["zoo:walker_walk-svea", "--setting", "$(reboot)"], "mode=video_hard"),
        (["zoo:walker_walk-svea", "--setting", "#a=" + "x" * 3000], "mode=video_hard"),
        (["zoo:walker_walk-svea", "--host", "203.0.113.7"], "address of this machine"),
        (["zoo:walker_walk-svea", "--data-dir", "no/such"], "no/such"),
        (["zoo:walker_walk-svea", "--task", "finger_spin"], "zoo:walker_walk-svea: an action of"),
        (["zoo:walker_walk-svea", "--device", "mps"], "device mps is not available"),
        (["zoo:walker_walk-svea", "--task", "zoo:walker_walk-drq"], "an agent of the zoo"),
    ],
)
def test_mistakes_end_with_a_message(arguments, said, capsys):
    assert main(["play", *arguments, "--no-browser"]) == 2
    assert said in capsys.readouterr().err


def test_a_damaged_agent_is_refused_before_anything_is_served(tmp_path, monkeypatch, capsys):
    folder = Path(shutil.copytree(zoo.home() / "walker_walk-svea", tmp_path / "zoo/damaged"))
    export = Path(shutil.copytree(folder, tmp_path / "export"))
    for each in (folder, export):
        weights = each / "actor.safetensors"
        weights.write_bytes(weights.read_bytes()[:-1] + b"!")
    monkeypatch.setenv("SVEA_ZOO", str(folder.parent))
    for run in ("zoo:damaged", str(export)):
        assert main(["play", run, "--no-browser"]) == 4
        said = capsys.readouterr()
        assert "http" not in said.out
        assert "actor.safetensors has changed" in said.err


def test_a_task_that_cannot_be_made_is_refused_without_a_traceback(tmp_path, monkeypatch, capsys):
    (tmp_path / "broken_world.py").write_text("def make():\n    raise KeyError('no such map')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert main(["play", "--random", "--task", "broken_world:make", "--no-browser"]) == 5
    said = capsys.readouterr().err
    assert "broken_world:make" in said and "KeyError: 'no such map'" in said
    assert "Traceback" not in said


def test_other_machines_are_let_in_with_a_warning(monkeypatch, capsys):
    from svea.play import server

    async def run(made: Any, playground: Any, socket: Any, ready: Any) -> None:
        assert [slot.name for slot in playground.slots] == ["walker_walk-svea", "random policy"]
        assert playground.slots[1].task == "walker_walk"
        assert {slot.rows for slot in playground.slots} == {3}
        ready()

    monkeypatch.setattr(server, "run", run)
    given = ["play", "zoo:walker_walk-svea", "--random", "--envs", "3", "--no-browser"]
    assert main([*given, "--host", "0.0.0.0", "--setting", "http://x/#noise=0.1&mode=train"]) == 0
    said = capsys.readouterr()
    assert "anyone who can reach this machine" in said.err
    assert "#noise=0.1&mode=train" in said.out and "http://127.0.0.1:" in said.out


@pytest.mark.parametrize(
    ("missing", "cure"),
    [("starlette.applications", "pip install '.[play]'"), ("svea.play", "install svea")],
)
def test_what_is_not_installed_is_named_with_its_cure(missing, cure, monkeypatch, capsys):
    monkeypatch.delitem(sys.modules, "svea.play.server", raising=False)
    monkeypatch.setitem(sys.modules, missing, None)
    assert main(["play", "zoo:walker_walk-svea"]) == 2
    said = capsys.readouterr().err
    assert missing.partition(".app")[0] in said and cure in said
