"""The command line: one verb, one short function, in a module per kind of verb."""

from __future__ import annotations

import signal
import sys
import warnings
from collections.abc import Callable
from typing import Any

from svea import __version__
from svea.cli import benchmarks, evidence, reference, studies, training
from svea.cli.arguments import tyro
from svea.errors import SveaError, UserError

VERBS: dict[str, Callable[[list[str]], int]] = {
    "train": training.train,
    "eval": evidence.evaluate,
    "watch": evidence.watch,
    "analyze": evidence.analyze,
    "compare": evidence.compare,
    "report": evidence.report,
    "export": training.export,
    "methods": reference.methods,
    "gallery": reference.gallery,
    "bench": benchmarks.bench,
    "sweep": studies.sweep,
    "paper": studies.paper,
    "data": reference.data,
    "doctor": reference.doctor,
}


def main(arguments: list[str] | None = None) -> int:
    """Run a verb and return the exit code; user errors are one message on stderr."""
    if arguments is not None:
        return answer(arguments)
    code = answer(sys.argv[1:])
    for number in (signal.SIGINT, signal.SIGTERM):
        # All is done and said. Python takes a while to end, and a signal then would look like a
        # run that was killed.
        signal.signal(number, signal.SIG_IGN)
    return code


def answer(arguments: list[str]) -> int:
    """Do what the words say."""
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(overview())
        return 0
    if arguments[0] in ("-V", "--version", "version"):
        print(f"svea {__version__}")
        return 0
    warnings.formatwarning = one_line_warning
    try:
        return run_verb(arguments[0], arguments[1:])
    except SveaError as error:
        where = f" (details: {error.details})" if error.details else ""
        print(f"svea: {error}{where}", file=sys.stderr)
        if not error.details:  # e.g. the traceback of a worker
            print(*getattr(error, "__notes__", []), sep="\n", end="", file=sys.stderr)
        return error.exit_code
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "svea":
            raise
        print(
            f"svea: {arguments[0]} needs {error.name}, which is not installed: "
            "pip install 'svea[train]'",
            file=sys.stderr,
        )
        return UserError.exit_code
    except KeyboardInterrupt:
        print("svea: stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:  # `svea methods | head`
        sys.stderr.close()
        return 0


def one_line_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    line: str | None = None,
) -> str:
    """What a user should know, without the line of code that says it; other warnings as ever."""
    if category is UserWarning:
        return f"warning: {message}\n"
    return f"{filename}:{lineno}: {category.__name__}: {message}\n"


def run_verb(verb: str, arguments: list[str]) -> int:
    """Find the verb and let it read its own arguments."""
    from svea.errors import unknown_name

    if verb not in VERBS:
        raise unknown_name("verb", verb, VERBS)
    if verb != "doctor" and tyro is None:
        raise UserError(f"{verb} needs the training extras: pip install 'svea[train]'")
    return VERBS[verb](arguments) or 0


def overview() -> str:
    """What `svea --help` prints."""
    lines = ["svea: image-based reinforcement learning that stays stable under augmentation", ""]
    lines += [f"  svea {verb:<9} {first_line(function)}" for verb, function in VERBS.items()]
    lines += ["", "`svea VERB --help` lists its options; `svea doctor` checks this machine."]
    return "\n".join(lines)


def first_line(function: Callable[..., Any]) -> str:
    """The first line of a function's docstring."""
    return (function.__doc__ or "").strip().splitlines()[0]
