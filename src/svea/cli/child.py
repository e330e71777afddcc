"""Runs a `svea` command as a child that does not outlive its parent.

`python -m svea.cli.child PID VERB ...` is `svea VERB ...` with two differences. When PID, its
parent, dies for any reason, the command gets SIGTERM: it saves and ends, instead of training on
unsupervised. And the signals by which batch systems warn a whole job do not end it: its parent
handles them.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

SECONDS = 0.5  # between checks of the parent


def main() -> int:
    """Watch the parent from a thread, and run the command in the main thread."""
    parent, arguments = int(sys.argv[1]), sys.argv[2:]
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)  # inherited by the environments' processes too
    threading.Thread(target=stop_with_parent, args=(parent,), daemon=True).start()
    sys.argv = ["svea", *arguments]  # config.json records the command as a user would type it
    from svea.cli import main as svea
    from svea.core import importing

    importing.count_typed_alone()
    return svea(arguments)


def stop_with_parent(parent: int) -> None:
    """Stop this process, with SIGTERM, once its parent has died."""
    while os.getppid() == parent:
        time.sleep(SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
