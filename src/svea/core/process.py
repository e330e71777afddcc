"""Child processes, started by function, which end with their parent; and how a process ends.

A child does not have the working folder on its path before the standard library and what is
installed: anything may lie there. It has a session of its own, because a terminal's Ctrl-C is for
the parent, which saves first. A process of ours ends with a message on stderr and an exit code, not
with a traceback.
"""

import contextlib
import ctypes
import errno
import importlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from svea.core import errors
from svea.core.errors import Stopped, SveaError, UserError, WorkerError, install_hint
from svea.core.terminal import note

PARENT_SECONDS = 0.5  # between checks of the parent, where the kernel does not tell its death
SHOW_CURSOR = "\r\x1b[2K\x1b[?25h"  # in place of the progress bar, which would stay


class Child(subprocess.Popen[bytes]):
    """A process that was started here."""

    _asked = False

    def stop(self, seconds: float) -> int:
        """Ask it to end, once: a second SIGTERM would mean at once, without saving."""
        if self.poll() is None and not self._asked:
            self._asked = True
            self.terminate()
        return self.end(seconds)

    def end(self, seconds: float) -> int:
        """Wait for its exit code; kill it if it does not end in time."""
        try:
            return self.wait(max(0.0, seconds))
        except subprocess.TimeoutExpired:
            self.kill()
            return self.wait()


_started: weakref.WeakSet[Child] = weakref.WeakSet()


def start(
    function: str,
    *arguments: object,
    with_parent: int = signal.SIGKILL,
    output: IO[bytes] | None = None,
    variables: dict[str, str] | None = None,
    pass_fds: Sequence[int] = (),
) -> Child:
    """Start a Python process that calls `module:name`, whose arguments are texts.

    What the function returns is the exit code. When this process dies, however it dies, that one
    gets the signal `with_parent`. It prints where this one does if it has no output of its own.
    """
    called = [str(os.getpid()), str(int(with_parent)), function, *map(str, arguments)]
    child = Child(
        [sys.executable, "-P", "-m", "svea.core.process", *called],
        stdin=subprocess.DEVNULL, stdout=output, stderr=output, pass_fds=pass_fds,
        env=environment() | (variables or {}), start_new_session=True,
    )  # fmt: skip
    _started.add(child)
    return child


def main() -> None:
    """The other end of `start`."""
    parent, number, *rest = sys.argv[1:]
    end_with_parent(int(parent), int(number))
    sys.argv = rest
    sys.exit(_function(rest[0])(*rest[1:]))


def end_with_parent(parent: int, number: int) -> None:
    """Have this process get a signal when its parent dies."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(PARENT_SECONDS)
        os.kill(os.getpid(), number)

    if sys.platform == "linux":
        parent_death_signal = 1
        ctypes.CDLL(None).prctl(parent_death_signal, number)
    if sys.platform != "linux" or os.getppid() != parent:  # where it died before
        threading.Thread(target=watch, daemon=True).start()


def ask(function: str, *arguments: object, seconds: float) -> Any:
    """What a function returns or raises in another process, where native code may crash or hang.

    A WorkerError if the process died, or gave no answer in time.
    """
    with tempfile.TemporaryFile() as answer, tempfile.TemporaryFile() as printed:
        descriptor = answer.fileno()
        child = start(
            "svea.core.process:answer", descriptor, function, *arguments,
            output=printed, pass_fds=[descriptor],
        )  # fmt: skip
        try:
            code = child.wait(seconds)
        except subprocess.TimeoutExpired:
            raise WorkerError(f"gave no answer in {seconds:g} s") from None
        finally:
            child.end(0)
        for file in (answer, printed):
            file.seek(0)
        content, said = answer.read(), printed.read().decode(errors="replace").strip()
    if code or not content:
        raise WorkerError(": ".join([f"ended with {how_it_ended(code)}", *said.splitlines()[-1:]]))
    found = json.loads(content)
    if "error" in found:
        raise getattr(errors, found["error"], SveaError)(found["message"])
    return found["value"]


def answer(descriptor: str, function: str, *arguments: str) -> None:
    """The other end of `ask`."""
    try:
        found = {"value": _function(function)(*arguments)}
    except SveaError as error:
        found = {"error": type(error).__name__, "message": str(error)}
    os.write(int(descriptor), json.dumps(found).encode())


def run(command: Sequence[str], seconds: float) -> subprocess.CompletedProcess[str] | None:
    """Run a program of others; None if it takes too long, and is stopped with all it started."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True, errors="replace",
        process_group=0,
    ) as program:  # fmt: skip
        try:
            printed, complaints = program.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            if program.returncode is None:
                os.killpg(program.pid, signal.SIGKILL)
    return subprocess.CompletedProcess(command, program.returncode, printed, complaints)


def how_it_ended(code: int) -> str:
    """An exit code in words: the signal that ended a process, if one did."""
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def kill_all() -> None:
    """Kill every process that was started here, and their children, without waiting for them."""
    for child in list(_started):
        if child.poll() is None:
            with contextlib.suppress(OSError):
                os.killpg(child.pid, signal.SIGKILL)


def environment() -> dict[str, str]:
    """The variables of every Python child: it imports from where this process does.

    The working folder is the last place, and one only if this process looks there at all.
    """
    source = str(Path(__file__).parents[2])
    inherited = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    entries = dict.fromkeys([*(entry or os.curdir for entry in sys.path), *inherited, source])
    ordered = sorted(entries, key=lambda e: _is_working_folder(e) and e != source)
    return os.environ | {"PYTHONPATH": os.pathsep.join(ordered)}


def working_folder_last() -> None:
    """Let modules of the working folder be imported, after all others: a user named one."""
    if not any(map(_is_working_folder, sys.path)):
        sys.path.append(os.getcwd())


@contextlib.contextmanager
def on_signals(numbers: Sequence[int], *actions: Callable[[int], None]) -> Iterator[None]:
    """Take the first signal of these with the first action, the next with the next, and so on.

    In any thread but the main one, where Python allows no handlers, this does nothing.
    """
    waiting, before = list(actions), dict[int, Any]()

    def handle(number: int, frame: object) -> None:
        (waiting.pop(0) if len(waiting) > 1 else waiting[0])(number)

    if threading.current_thread() is threading.main_thread():
        before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def interrupt(number: int) -> None:
    """An action for `on_signals`: what Ctrl-C does."""
    raise KeyboardInterrupt


@contextlib.contextmanager
def second_ends_at_once(last_words: Callable[[], str]) -> Iterator[None]:
    """Let a first Ctrl-C raise KeyboardInterrupt as ever, and a second one end this process.

    The first waits for threads, and those for environments that may take minutes to answer. Before
    the end, a line says what was kept. Where Ctrl-C has another meaning, this does nothing.
    """

    def end(number: int) -> None:
        clear = SHOW_CURSOR if sys.stderr.isatty() else ""
        # Not print: the first signal may have come in the middle of one.
        os.write(sys.stderr.fileno(), f"{clear}svea: {last_words()}\n".encode())
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())  # threads warn of the dead
        kill_all()
        os._exit(128 + number)  # an ordinary exit would wait for the threads

    is_free = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with on_signals([signal.SIGINT] if is_free else [], interrupt, end):
        yield


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


def _function(path: str) -> Callable[..., Any]:
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)  # type: ignore[no-any-return]


def _is_working_folder(entry: str) -> bool:
    """Whether an entry of a path is the working folder."""
    try:
        return os.path.samefile(entry or os.curdir, os.curdir)
    except OSError:  # an entry, or the folder itself, is gone
        return False


if __name__ == "__main__":
    main()
