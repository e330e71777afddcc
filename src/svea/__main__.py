"""`python -m svea`: the same as the command `svea`, also from an uninstalled source tree."""

import sys

from svea.cli import main

if __name__ == "__main__":
    sys.exit(main())
