"""The command line: a module per verb, imported when the verb is used, with a function `run`."""

from __future__ import annotations

import errno
import importlib
import signal
import sys
import warnings

from svea import __version__
from svea.cli.encoding import write_what_streams_can_show
from svea.errors import SveaError, UserError, install_hint, unknown_name

VERBS = {
    "demo": "Show trained agents in unseen worlds, train one here, and report on both.",
    "train": "Train an agent, or continue a run (the same command again).",
    "eval": "Evaluate runs or exports in any mode.",
    "watch": "Film an agent in several modes side by side.",
    "play": "Open a page to change the world by hand and watch agents in it.",
    "analyze": "Analyse agents as the paper does: Q-targets, Q-values, wall time, saliency.",
    "compare": "Compare two methods over tasks and seeds.",
    "report": "Write one self-contained HTML page about runs.",
    "export": "Write a small folder to share: actor, critic, configuration.",
    "zoo": "List trained agents to use by name: `svea watch zoo:NAME`.",
    "methods": "List methods: which views feed which part.",
    "tasks": "List tasks, and the modes in which they can be evaluated.",
    "gallery": "Write contact sheets to look at.",
    "bench": "Measure speed on this machine: augmentations, environments, updates, training.",
    "sweep": "Run a study of many runs: here, on a Ray cluster or under SLURM.",
    "paper": "Run and draw the paper's tables, figures and claims.",
    "data": "List, check or download benchmark data; none of it is needed to train.",
    "doctor": "Check this machine: versions, device, renderer, data; and say how to fix problems.",
    "completion": "Print a script that lets bash or zsh complete verbs and flags.",
}
"""What each verb does, for `svea --help`; `eval` is a name of Python's, so its module is longer."""


def main(arguments: list[str] | None = None) -> int:
    """Run a verb and return the exit code; user errors are one message on stderr."""
    caller = sys.stdout, sys.stderr
    write_what_streams_can_show()
    if arguments is not None:
        try:
            return answer(arguments)
        finally:
            sys.stdout, sys.stderr = caller
    code = answer(sys.argv[1:])
    for number in (signal.SIGINT, signal.SIGTERM):
        # Everything is done, but Python takes a while to exit, and a signal during that time would
        # make the run look killed.
        signal.signal(number, signal.SIG_IGN)
    return code


def answer(arguments: list[str]) -> int:
    """Run the verb that the arguments name; errors become a message and an exit code."""
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
            f"svea: {arguments[0]} needs {error.name}, which is not installed: {install_hint()}",
            file=sys.stderr,
        )
        return UserError.exit_code
    except BrokenPipeError:  # `svea methods | head`
        sys.stderr.close()
        return 0
    except OSError as error:
        if error.errno not in (errno.ENAMETOOLONG, errno.ELOOP, errno.EACCES, errno.EPERM):
            raise
        print(f"svea: cannot use {error.filename!r}: {error.strerror}", file=sys.stderr)
        return UserError.exit_code
    except KeyboardInterrupt:
        print("svea: stopped", file=sys.stderr)
        return 130


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
    if verb not in VERBS:
        raise unknown_name("verb", verb, VERBS)
    module = importlib.import_module(f"svea.cli.{'evaluate' if verb == 'eval' else verb}")
    return module.run(arguments) or 0


def overview() -> str:
    """What `svea --help` prints."""
    lines = ["svea: image-based reinforcement learning that stays stable under augmentation", ""]
    lines += [f"  svea {verb:<10} {about}" for verb, about in VERBS.items()]
    lines += ["", "`svea VERB --help` lists its options; `svea doctor` checks this machine."]
    return "\n".join(lines)
