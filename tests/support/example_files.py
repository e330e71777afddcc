"""The files in `examples/`, run as a user runs them."""

import os
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name: str, *arguments: str) -> str:
    """What an example prints."""
    settings = {k: v for k, v in os.environ.items() if k != "SVEA_DATA"}
    settings["PYTHONPATH"] = os.pathsep.join(sys.path)
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    done = subprocess.run(command, env=settings, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout
