"""Paths that a user names: what no folder can hold is refused before anything is written."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

from svea.core.errors import UserError

LONGEST_NAME, LONGEST_PATH = 255, 4095
"""Bytes that Linux allows."""


def check_path(path: str | Path, name: str = "path") -> None:
    """Refuse a path that no folder can hold, whatever is there: too long, or not text."""
    text = os.fspath(path)
    try:
        too_long = any(len(part.encode()) > LONGEST_NAME for part in Path(text).parts)
        too_long |= len(text.encode()) > LONGEST_PATH
    except UnicodeEncodeError:  # bytes that are not UTF-8; weights could not be saved there
        raise UserError(f"{name} is {text!r}, which is not UTF-8; use another name") from None
    if too_long:
        shown = f"{text[:40]}...{text[-20:]}"
        raise UserError(
            f"{name} is {shown!r}, which is too long; allowed: {LONGEST_NAME} bytes between "
            f"slashes, {LONGEST_PATH} in all"
        )
    if "\0" in text:
        raise UserError(f"{name} is {text!r}; a path has no zero byte")


def output_file(path: Path, name: str = "out") -> Path:
    """The path of a file to be written, or replaced; refused where that cannot work."""
    return _output(path, name, (stat.S_ISREG, stat.S_ISDIR), "a plain file")


def output_folder(path: Path, name: str = "out") -> Path:
    """The path of a folder to write into, which need not exist; refused where that cannot work."""
    return _output(path, name, (stat.S_ISDIR,), "a folder")


def _output(path: Path, name: str, kinds: tuple[Callable[[int], bool], ...], what: str) -> Path:
    check_path(path, name)
    problem = ""
    try:
        if not any(is_kind(os.stat(path).st_mode) for is_kind in kinds):
            problem = f"which is not {what}"
    except FileNotFoundError:
        if os.path.islink(path):
            problem = f"a link to {os.readlink(path)}, which does not exist"
    except NotADirectoryError:
        problem = "but a part of that path is a file and not a folder"
    except OSError as error:
        if error.errno == errno.ELOOP:
            problem = "a link that leads back to itself"
        # Anything else, such as a lack of permission, is said by what writes there.
    if problem:
        raise UserError(f"{name} is {str(path)!r}, {problem}; name another place")
    return path
