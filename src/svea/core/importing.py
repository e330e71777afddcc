"""What users name as `module:name`: environments, modes, augmentations.

Importing a module executes it. So a module that a folder names (config.json, study.json) is
imported only if the user has named it as well, on the command line or in Python, or has imported it
already, or says that the folder is to be trusted.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Iterable
from typing import Any

from svea.core.errors import UserError
from svea.core.process import working_folder_last
from svea.core.tracebacks import where_raised

EVERYTHING = "*"
_NAME = re.compile(r"[\w.]+:(\w+|[\w./-]+-v\d+)")  # module:name, or a Gymnasium id
_users: set[str] = set()  # modules that the user has named
_counts_imported = True  # whether the user may be who imported a module


def is_import_path(text: str) -> bool:
    """Whether a text can be `module:name`.

    >>> is_import_path("my_package.looks:NightMode"), is_import_path("distracting_cs:0.3")
    (True, False)
    """
    module, _, name = text.partition(":")
    return name.isidentifier() and all(part.isidentifier() for part in module.split("."))


def import_named(kind: str, path: str) -> Any:
    """Import what a user named as `module:name`.

    Args:
        kind: What it is, for the message: task, mode, augmentation.
        path: As typed.
    """
    module, _, name = path.partition(":")
    if not module or module.startswith(".") or not name:
        raise UserError(f"{kind} is {path!r}; one of yours is named as module:function.")
    working_folder_last()
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        without = module.removesuffix(".py")
        hint = f" Leave .py out: {without}:{name}." if without != module else ""
        raise UserError(
            f"{kind} {path!r} cannot be imported: {error}.{hint} Allowed: module:name of a module "
            "that is installed, on PYTHONPATH, or in this folder."
        ) from error
    except Exception as error:  # a mistake in the user's module
        where = where_raised(error)
        raise UserError(
            f"{kind} {path!r} cannot be imported: {type(error).__name__}: {error}"
            + (f" ({where})" if where else "")
        ) from error


def trust(*names: str) -> None:
    """Take modules as the user's choice.

    Args:
        names: `module:name`, or EVERYTHING.
    """
    _users.update(module_of(name) for name in names)


def trust_typed(arguments: Iterable[str]) -> None:
    """Take the modules that are named on a command line as the user's choice.

    The name of a file or folder is its maker's choice, also if a shell completed it.
    """
    words = (argument for argument in arguments if not os.path.exists(argument))
    trust(
        *(part for word in words for part in re.split(r"[\s,=|+]", word) if _NAME.fullmatch(part))
    )


def count_typed_alone() -> None:
    """In a process of the command line, what is imported already was not imported by the user."""
    global _counts_imported
    _counts_imported = False


def require_trust(names: Iterable[str], source: object) -> None:
    """Refuse names of modules that the user has not chosen.

    Args:
        names: `module:name`, as they stand in a file.
        source: The folder of that file.
    """
    for name in names:
        if not _is_chosen(module_of(name), name):
            raise UserError(
                f"{source} names {name!r}, and to use it is to execute the module "
                f"{module_of(name)!r}. If you trust it, give --trust (in Python: trust=True, or "
                "import the module), or name it on the command line"
            )


def module_of(name: str) -> str:
    """The module of `module:name`."""
    return name.partition(":")[0]


def _is_chosen(module: str, name: str) -> bool:
    """Whether a user has chosen a module, or it holds nothing but Gymnasium's environments."""
    if {module, EVERYTHING} & _users or re.fullmatch(r"gymnasium:[\w./-]+-v\d+", name):
        return True
    is_own = module.partition(".")[0] not in {*sys.stdlib_module_names, "svea"}
    return _counts_imported and is_own and module in sys.modules
