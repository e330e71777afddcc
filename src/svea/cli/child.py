"""Runs a `svea` command that ends when the process that asked for it is gone.

`python -m svea.cli.child PID VERB ...` is `svea VERB ...` with two differences. When PID, its
parent, dies in whatever way, the command is told to stop as by SIGTERM: it saves and ends, instead
of training on where nobody looks. And the signals by which batch systems warn a whole job do not
end it: its parent knows what to do about them.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

SECONDS = 0.5  # between looks at the parent


def main() -> int:
    """Watch the parent from a thread, and run the command in the main thread."""
    parent, arguments = int(sys.argv[1]), sys.argv[2:]
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)  # inherited by the environments' processes too
    threading.Thread(target=stop_without, args=(parent,), daemon=True).start()
    sys.argv = ["svea", *arguments]  # so that config.json names the command as one would type it
    from svea.cli import main as svea

    return svea(arguments)


def stop_without(parent: int) -> None:
    """Ask this process to stop as soon as its parent is another one."""
    while os.getppid() == parent:
        time.sleep(SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
