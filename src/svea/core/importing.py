"""Users' own code: imported as `module:name`, run, and where in it something raised or hangs.

Importing a module executes it. So a module that a folder names (config.json, study.json) is
imported only if the user has named it as well, on the command line or in Python, or has imported it
already, or says that the folder is to be trusted.
"""

import contextlib
import importlib
import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from svea.core.errors import UserError
from svea.core.process import working_folder_last

EVERYTHING = "*"
_NAME = re.compile(r"[\w.]+:(\w+|[\w./-]+-v\d+)")  # module:name, or a Gymnasium id
_users: set[str] = set()  # modules that the user has named
_counts_imported = True  # whether the user may be who imported a module

Frame = tuple[str, int, str]  # file, line, function
_PYTHONS = ("<frozen", sysconfig.get_path("stdlib") + os.sep)
_GYMNASIUM = find_spec("gymnasium")  # found, not imported: networks come here too
_BETWEEN = (
    f"{Path(__file__).parents[1]}{os.sep}",
    f"{Path((_GYMNASIUM and _GYMNASIUM.origin) or os.devnull).parent}{os.sep}",
)
_INSTALLED = re.compile(r"[/\\](site|dist)-packages[/\\]")
_DUMPED = re.compile(r'File "(.+)", line (\d+) in (\S+)')  # as faulthandler writes it


def is_import_path(text: str) -> bool:
    """Whether a text can be `module:name`, as distracting_cs:0.3 cannot."""
    module, _, name = text.partition(":")
    return name.isidentifier() and all(part.isidentifier() for part in module.split("."))


def import_named(kind: str, path: str) -> Any:
    """Import what a user named as `module:name`; its kind is for the message: task, mode."""
    module, _, name = path.partition(":")
    if not module or module.startswith(".") or not name:
        raise UserError(f"{kind} is {path!r}; one of yours is named as module:function.")
    working_folder_last()
    allowed = "module:name, without .py, of a module that is installed or in this folder"
    with users_code(f"{kind} {path!r} cannot be imported (allowed: {allowed}):"):
        return getattr(importlib.import_module(module), name)


def trust(*names: str) -> None:
    """Take the modules of each `module:name`, or EVERYTHING, as the user's choice."""
    _users.update(name.partition(":")[0] for name in names)


def trust_typed(arguments: Iterable[str]) -> None:
    """Take the modules that are named on a command line as the user's choice.

    The name of a file or folder is its maker's choice, also if a shell completed it.
    """
    typed = (argument for argument in arguments if not os.path.exists(argument))
    parts = (part for argument in typed for part in re.split(r"[\s,=|+]", argument))
    trust(*filter(_NAME.fullmatch, parts))


def count_typed_alone() -> None:
    """In a process of the command line, what is imported already was not imported by the user."""
    global _counts_imported
    _counts_imported = False


def require_trust(names: Iterable[str], source: object) -> None:
    """Refuse names in a file of the `source` folder whose modules the user has not chosen."""
    for name in names:
        module = name.partition(":")[0]
        if not _is_chosen(module, name):
            raise UserError(
                f"{source} names {name!r}, and to use it is to execute the module "
                f"{module!r}. If you trust it, give --trust (in Python: trust=True, or "
                "import the module), or name it on the command line"
            )


def _is_chosen(module: str, name: str) -> bool:
    """Whether a user has chosen a module, or it holds nothing but Gymnasium's environments."""
    if {module, EVERYTHING} & _users or re.fullmatch(r"gymnasium:[\w./-]+-v\d+", name):
        return True
    is_own = module.partition(".")[0] not in {*sys.stdlib_module_names, "svea"}
    return _counts_imported and is_own and module in sys.modules


@contextlib.contextmanager
def users_code(what: str) -> Iterator[None]:
    """A region in which a user's own code runs: what it raises becomes a message after `what`."""
    try:
        yield
    except Exception as error:  # whatever a user's code may raise
        where = f" ({place})" if (place := where_raised(error)) else ""
        raise UserError(f"{what} {type(error).__name__}: {error}{where}") from error


def where_raised(error: BaseException) -> str:
    """The place in the user's code that an exception came through last; empty if none."""
    frames = traceback.extract_tb(error.__traceback__)
    return _place([(frame.filename, frame.lineno or 0, frame.name) for frame in frames[::-1]])


def where_stuck(dump: str) -> str:
    """The same for the stack of a process that hangs, as faulthandler writes it."""
    current = dump.partition("Current thread")[2] or dump
    found = _DUMPED.findall(current.partition("\n\n")[0])
    return _place([(file, int(line), function) for file, line, function in found])


def _place(frames: list[Frame]) -> str:
    """Choose among frames, innermost first: the user's own code before installed packages."""
    others = [frame for frame in frames if not frame[0].startswith(_BETWEEN)]
    installed = [frame for frame in others if _INSTALLED.search(frame[0])]
    written = [f for f in others if f not in installed and not f[0].startswith(_PYTHONS)]
    for file, line, function in written[:1] or installed[-1:]:
        return f"{file.removeprefix(os.getcwd() + os.sep)}, line {line}, in {function}"
    return ""
