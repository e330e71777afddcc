"""Ctrl-C twice: the second one ends a verb at once, whatever its threads and processes wait for."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SHOW_CURSOR = "\r\x1b[2K\x1b[?25h"  # in place of the progress bar, which would stay


@contextmanager
def second_ends_at_once(last_words: Callable[[], str]) -> Iterator[None]:
    """Let a first Ctrl-C raise KeyboardInterrupt as ever, and a second one end this process.

    The first waits for threads, and those for environments that may take minutes to answer. Where
    Ctrl-C has another meaning already, or in any thread but the main one, this does nothing.

    Args:
        last_words: called before the end for the line that says what was kept.
    """
    from svea.envs.workers.worker import kill_all

    came = False

    def handle(number: int, frame: object) -> None:
        nonlocal came
        if came:
            kill_all()
            clear = SHOW_CURSOR if sys.stderr.isatty() else ""
            # Not print: the first signal may have come in the middle of one.
            os.write(sys.stderr.fileno(), f"{clear}svea: {last_words()}\n".encode())
            os._exit(128 + number)  # an ordinary exit would wait for the threads
        came = True
        raise KeyboardInterrupt

    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    try:
        signal.signal(signal.SIGINT, handle)
    except ValueError:  # only the main thread may
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
