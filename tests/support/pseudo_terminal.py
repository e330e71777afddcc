"""Commands on a terminal of some width, as a person sees them."""

import contextlib
import fcntl
import os
import pty
import signal
import struct
import sys
import termios
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
    """What each command of `svea` writes to a terminal of so many columns, and its exit code.

    All in one process, which is quicker; it is killed after four minutes.
    """
    pid, end = pty.fork()
    if pid == 0:  # pragma: no cover (another process)
        os.chdir(cwd)
        kept = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "NO_COLOR")}
        path = os.pathsep.join([str(SOURCE), *filter(None, sys.path)])
        environment = kept | {"TERM": "xterm", "PYTHONPATH": path} | variables
        os.execve(sys.executable, [sys.executable, "-c", COMMANDS, *commands], environment)
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    signal.signal(signal.SIGALRM, lambda *_: os.kill(pid, signal.SIGKILL))
    signal.alarm(240)
    written = b""
    with contextlib.suppress(OSError):  # how Linux says that the other end is closed
        while read := os.read(end, 1 << 16):
            written += read
    signal.alarm(0)
    os.close(end)
    text, code = written.decode(), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code == 0, text
    parts = text.split("\x00")
    return {
        command: (parts[2 * place], int(parts[2 * place + 1] or 0))
        for place, command in enumerate(commands)
    }
