"""Completion in a real shell."""

import os
import shutil
import stat
import subprocess
import sys

import pytest
from exit_codes import call

from svea.cli import VERBS, main
from svea.methods import METHODS

needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")


@pytest.fixture
def complete(tmp_path, capsys):
    """What bash offers for a line whose last word is being typed."""
    assert main(["completion", "bash"]) == 0
    script = tmp_path / "completion.bash"
    script.write_text(capsys.readouterr().out)
    command = tmp_path / "svea"  # the shell asks it for the flags of a verb
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m svea "$@"\n')
    command.chmod(command.stat().st_mode | stat.S_IXUSR)

    def offered(*words: str) -> list[str]:
        quoted = " ".join(f"'{word}'" for word in words)
        line = f"source {script}; COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _svea"
        found = subprocess.run(
            ["bash", "-c", line + "; printf '%s\\n' \"${COMPREPLY[@]}\""],
            capture_output=True, text=True, check=True,
            env={**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"},
        )  # fmt: skip
        assert not found.stderr
        return found.stdout.split()

    return offered


@needs_bash
def test_verbs_tasks_methods_modes_and_flags_are_offered(complete):
    assert complete("svea", "tr") == ["train"]
    assert set(VERBS) <= set(complete("svea", ""))
    assert "walker_walk" in complete("svea", "train", "walker_")
    assert complete("svea", "train", "walker_walk", "--method", "") == list(METHODS)
    assert "color_hard" in complete("svea", "eval", "run", "--modes", "color")
    assert {"geometry", "rotate_hard"} <= {
        *complete("svea", "watch", "run", "--modes", "geo"),
        *complete("svea", "train", "walker_walk", "--eval-mode", "rotate_h"),
    }
    assert "--wandb-project" in complete("svea", "train", "walker_walk", "--wan")


def test_zsh_loads_its_bridge_first_and_other_shells_are_refused(capsys):
    assert main(["completion", "zsh"]) == 0
    assert capsys.readouterr().out.startswith("autoload")
    assert call(["completion", "tcsh"]) == 2
    assert "bash" in capsys.readouterr().err
