"""How a process of ours ends: with a message on stderr and an exit code, not with a traceback."""

from __future__ import annotations

import errno
import os
import resource
import sys
from collections.abc import Callable

from svea.core.errors import Stopped, SveaError, UserError, install_hint
from svea.core.terminal import note


def exit_code(work: Callable[[], int | None], name: str, ends: bool = False) -> int:
    """The exit code of some work; an error becomes a message and the code of its class.

    The message has the name of the work, and the process may end with it.
    """
    code = 0
    try:
        try:
            code = work() or 0
        finally:  # also after help, which ends with SystemExit: what fails now fails below
            sys.stdout.flush()
        return code
    except SveaError as error:
        _say(f"{error} (details: {error.details})" if error.details else str(error))
        if not error.details:  # e.g. the traceback of a worker
            sys.stderr.write("\n".join(getattr(error, "__notes__", [])))
        return error.exit_code
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "svea":
            raise
        _say(f"{name} needs {error.name}, which is not installed: {install_hint()}")
    except BrokenPipeError:  # `svea methods | head`: Python's own flush at its end would fail, too
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return code
    except Stopped as stopped:
        _say(str(stopped))
        return stopped.exit_code
    except KeyboardInterrupt:
        _say("stopped")
        return 130
    except (OSError, MemoryError, SystemError, ImportError, RuntimeError) as error:
        if not (problem := exhausted(error)):
            raise
        _say(problem)
        if ends and not isinstance(error, OSError):
            sys.stdout.flush()
            os._exit(UserError.exit_code)  # without memory, Python's own end has tracebacks
    return UserError.exit_code


def _say(message: str) -> None:
    note(f"svea: {message}")


def exhausted(error: BaseException) -> str:
    """Which path cannot be used, or what this process has no more of; empty if neither is why.

    Without memory Python itself fails in many ways, most of them while a library is imported.
    """
    number = error.errno if isinstance(error, OSError) else None
    if number in (errno.ENAMETOOLONG, errno.ELOOP, errno.EACCES, errno.EPERM):
        return f"cannot use {error.filename!r}: {error.strerror}"  # type: ignore[attr-defined]
    if number in (errno.EMFILE, errno.ENFILE):
        allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return f"too many open files; {allowed} are allowed here. Allow more: ulimit -n 1024"
    signs = ("failed to map segment", "annot allocate memory", "can't start new thread")
    without = isinstance(error, MemoryError | SystemError) or number == errno.ENOMEM
    if not without and not any(sign in str(error) for sign in signs):
        return ""
    allowed = resource.getrlimit(resource.RLIMIT_AS)[0]
    if allowed == resource.RLIM_INFINITY:
        return "there is not enough memory. End other programs, or ask for less (--replay, --envs)"
    return f"there is not enough memory of {allowed >> 20:,} MiB (ulimit -v). Raise the limit"


def one_line_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: object = None
) -> str:
    """What a user should know, without the line of code that says it; other warnings as ever."""
    is_ours = category is UserWarning
    kind = "warning" if is_ours else f"{filename}:{lineno}: {category.__name__}"
    return f"{kind}: {message}\n"
