"""Commands on a terminal of some width, as a person sees them."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import sys
import termios
import time
from collections.abc import Sequence
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"


COMMANDS = """
import shlex, sys
from svea.cli import main
for command in sys.argv[1:]:
    try:
        code = main(shlex.split(command))
    except SystemExit as end:
        code = end.code
    sys.stderr.flush()
    print(f"\\x00{code}\\x00", end="", flush=True)
"""


def all_on_a_terminal(
    commands: Sequence[str], columns: int, cwd: Path, **variables: str
) -> dict[str, tuple[str, int]]:
    """What each command of `svea` writes, and its exit code; in one process, which is quicker."""
    text, code = on_a_terminal(["-c", COMMANDS, *commands], columns, cwd, **variables)
    assert code == 0, text
    parts = text.split("\x00")
    return {
        command: (parts[2 * place], int(parts[2 * place + 1] or 0))
        for place, command in enumerate(commands)
    }


def on_a_terminal(
    arguments: Sequence[str], columns: int, cwd: Path, seconds: float = 240.0, **variables: str
) -> tuple[str, int]:
    """What Python writes to a terminal, and its exit code.

    Args:
        arguments: Of Python.
        columns: Width of the terminal.
        cwd: Where to run it.
        seconds: After which it is killed.
        **variables: Of the environment.
    """
    pid, end = pty.fork()
    if pid == 0:  # pragma: no cover (another process)
        os.chdir(cwd)
        kept = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "NO_COLOR")}
        path = os.pathsep.join([str(SOURCE), *filter(None, sys.path)])
        environment = kept | {"TERM": "xterm", "PYTHONPATH": path} | variables
        os.execve(sys.executable, [sys.executable, *arguments], environment)
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    written, until = b"", time.monotonic() + seconds
    while time.monotonic() < until:
        if not select.select([end], [], [], 1.0)[0]:
            continue
        try:
            read = os.read(end, 1 << 16)
        except OSError:  # how Linux says that the other end is closed
            break
        if not read:
            break
        written += read
    else:
        os.kill(pid, 9)
    os.close(end)
    return written.decode(), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
