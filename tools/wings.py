"""Remove each wing in a copy of the tree, and run the core's tests there: `python tools/wings.py`.

A wing is heavy or special, and everything else must live without it. Names of wings as arguments
try only those. It takes a test run for each, so `make test` leaves it out.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
WINGS = ("kernels", "raster", "play", "paper")


def main(names: list[str]) -> int:
    """How many wings the core could not do without."""
    if unknown := set(names) - set(WINGS):
        print(f"no wing {', '.join(sorted(unknown))}; there are {', '.join(WINGS)}")
        return 2
    missed = [name for name in names or WINGS if not core_passes_without(name)]
    print(f"the core needs {', '.join(missed)}" if missed else "the core's tests pass without")
    return len(missed)


def core_passes_without(wing: str) -> bool:
    """Whether the core's tests pass in a copy of the last commit that lacks a wing."""
    print(f"== without {wing}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        archive = subprocess.run(
            ["git", "archive", "HEAD"], cwd=ROOT, check=True, stdout=subprocess.PIPE
        )
        subprocess.run(["tar", "x"], cwd=copy, input=archive.stdout, check=True)
        shutil.rmtree(copy / "src/svea" / wing)
        tests = [f"--ignore=tests/{name}" for name in WINGS]
        command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", *tests]
        threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        source = {"PYTHONPATH": str(copy / "src")}
        return subprocess.run(command, cwd=copy, env=os.environ | threads | source).returncode == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
