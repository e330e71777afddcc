"""The example that trains another library's agent on our environments."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from svea.envs import MODES

EXAMPLE = Path(__file__).parents[2] / "examples" / "sb3_sac.py"


def test_stable_baselines3_learns_and_is_tested_in_every_mode():
    pytest.importorskip("stable_baselines3", reason="pip install stable-baselines3 to run this")
    command = [sys.executable, str(EXAMPLE), "--steps", "40", "--episode-frames", "80"]
    settings = {k: v for k, v in os.environ.items() if k != "SVEA_DATA"}
    settings["PYTHONPATH"] = os.pathsep.join(sys.path)
    run = subprocess.run(command, env=settings, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    rows = dict(re.findall(r"^(\w+)\S*(?: \(\w+\))? +(\d+\.\d)$", run.stdout, re.MULTILINE))
    assert list(rows) == list(MODES)
