"""The command `svea`, and `python -m svea`, which also works from an uninstalled source tree."""

import os
import sys

# `-m` puts the working folder first, and so may PYTHONPATH: its files are not ours to execute.
try:
    here = {"", os.getcwd()}
except OSError:  # it has been removed
    here = {""}
source = os.path.dirname(os.path.dirname(__file__))
sys.path[:] = [entry for entry in sys.path if entry not in here or entry == source]

from svea.cli import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
