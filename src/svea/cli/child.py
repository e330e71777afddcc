"""A `svea` command as the child of a supervisor (`svea.core.process.start`)."""

from __future__ import annotations

import signal
import sys


def main(*arguments: str) -> int:
    """Run `svea VERB ...`; the signals by which batch systems warn a job are for the parent."""
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)  # inherited by the environments' processes too
    sys.argv = ["svea", *arguments]  # config.json records the command as a user would type it
    from svea.cli import main as svea
    from svea.core import importing

    importing.count_typed_alone()
    return svea(list(arguments))
