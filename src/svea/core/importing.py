"""What users name as `module:name`: environments, modes, augmentations."""

from __future__ import annotations

import importlib
from typing import Any

from svea.core.errors import UserError
from svea.core.machine import working_folder_last
from svea.core.tracebacks import where_raised


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
